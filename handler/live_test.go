package handler

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

// quietGate is a gate, and a database with one sale.
type quietGate struct{ offer *model.Offer }

func (quietGate) Peek(context.Context, ...model.GateRef) ([]model.GateState, error) {
	return []model.GateState{{Exists: true, Open: true, Epoch: 3, Left: 9, Inflight: 2, Stream: 1}}, nil
}

func (g quietGate) Offer(context.Context, string) (model.Offer, bool, error) {
	return *g.offer, true, nil
}

func (g quietGate) Books(context.Context, string) (model.Books, bool, error) {
	return model.Books{Stock: g.offer.Stock, BuyersUnits: 3, Units: map[model.OrderStatus]int64{"pending": 1, "paid": 2}}, true, nil
}

const livePath = "/api/v1/admin/sales/" + benchSale + "/live"

// openLive opens a shop whose sale has figures.
func openLive(t *testing.T) *wire {
	s := newShop(t)
	s.offer.Revision, s.offer.Stock = 7, model.Stock{SaleID: benchSale, Quota: 13, Available: 10, Held: 1, Paid: 2}
	s.refresh()
	instances := func(context.Context) map[string]model.Instance {
		purchases := map[model.Verdict]int64{model.SoldOut: 1, model.RateLimited: 7}
		return map[string]model.Instance{"a": {Sales: map[string]map[model.Verdict]int64{benchSale: purchases}}}
	}
	gate := quietGate{s.offer}
	s.api.Live.Service = service.NewLive(s.offers.Catalog, gate, gate, instances, []float64{1})
	return s.open()
}

// A console gets the figures at once and each second, until the server stops. Another console that does not read is
// disconnected. A stream ends with its token.
func TestLiveFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openLive(t)
		w.connect(livePath)
		l := w.listen(livePath)
		began := time.Now()
		check.Same(t, "status", l.status, http.StatusOK)
		sameHeader(t, "stream", l.header, map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
		const want = `"state":"open","status":"live","revision":7,"quota":13,"available":10,"held":1,"paid":2,"requests":8,` +
			`"purchases":{"rate_limited":7,"sold_out":1},`
		seconds := time.Duration(0)
		for e := range l.events {
			if e.name != "figures" {
				continue // a heartbeat
			}
			if !strings.Contains(e.data, want) || !json.Valid([]byte(e.data)) {
				t.Fatalf("second %d: %s", seconds, e)
			}
			check.Same(t, "time of the event", e.at.Sub(began).Round(time.Second), seconds*time.Second)
			if open := w.openConsoles(); time.Since(began) > sendTimeout+2*time.Second && open != 1 {
				t.Fatalf("after %s %d consoles are open", time.Since(began), open)
			}
			seconds++
		}
		if last := time.Hour / time.Second; (time.Since(began)-time.Hour).Abs() > 2*time.Second || seconds < last-2 || seconds > last+2 {
			t.Errorf("%d events in %s, want one in each second of an hour", seconds, time.Since(began))
		}
		synctest.Wait()
		check.Same(t, "open consoles", w.openConsoles(), 0)
		again := w.listen(livePath)
		close(w.stop)
		check.Same(t, "over when the server stops", again.over(), true)
	})
}

func TestViewFigures(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_123)
	stock := model.Stock{SaleID: "S", Quota: 13, Available: 10, Held: 1, Paid: 2}
	sale := model.Sale{ID: "S", Status: model.SaleLive, Revision: 7, StartsAt: at.Add(-time.Hour), EndsAt: at.Add(time.Hour)}
	offer := model.Offer{Sale: sale, Stock: stock}
	full := &service.SaleFigures{
		Now: at, Offer: offer, Database: true, BooksAt: at.Add(-time.Second), Reachable: true, Drift: -4, DriftAt: at.Add(-time.Minute),
		Books: model.Books{
			Stock: stock, BuyersUnits: 3,
			Orders: map[model.OrderStatus]int64{"paid": 1}, Units: map[model.OrderStatus]int64{"pending": 1, "paid": 2},
		},
		Gate:   model.GateState{Exists: true, Open: true, Epoch: 3, Left: 9, Inflight: 2, Stream: 1},
		Stages: map[string]service.Latency{"deduct": {Count: 7, P50: 1500 * time.Microsecond, P99: 2 * time.Second}},
		Instances: map[string]model.Instance{
			"b": {
				URL: "http://b", Strategy: "hybrid", GateReachable: true, ReportedAtMs: at.UnixMilli(),
				Sales: map[string]map[model.Verdict]int64{"S": {"sold_out": 40}, "T": {"sold_out": 9}},
			},
			"a": {
				URL: "http://a", Strategy: "local", ReportedAtMs: at.UnixMilli(),
				Sales: map[string]map[model.Verdict]int64{"S": {"sold_out": 1, "rate_limited": 7}},
			},
		},
	}
	const want = `{"sale_id":"S","now":"2027-01-15T08:00:00.123Z","state":"open","status":"live","revision":7,"quota":13,"available":10,"held":1,"paid":2,` +
		`"requests":48,"purchases":{"rate_limited":7,"sold_out":41},"orders":{"paid":1},"units":{"paid":2,"pending":1},` +
		`"books_at":"2027-01-15T07:59:59.123Z","ok":true,"database":{"reachable":true},` +
		`"gate":{"reachable":true,"epoch":3,"open":true,"left":9,"inflight":2,"stream":1},` +
		`"drift":-4,"drift_at":"2027-01-15T07:59:00.123Z","stages":{"deduct":{"count":7,"p50_ms":1.5,"p99_ms":2000}},"instances":[` +
		`{"id":"a","url":"http://a","strategy":"local","gate_reachable":false,"requests":8,"reported_at":"2027-01-15T08:00:00.123Z"},` +
		`{"id":"b","url":"http://b","strategy":"hybrid","gate_reachable":true,"requests":40,"reported_at":"2027-01-15T08:00:00.123Z"}]}`
	check.Same(t, "all figures", string(check.Must(json.Marshal(viewFigures(full)))), want)
	wrong := *full
	wrong.Books.BuyersUnits = 4
	check.Same(t, "ok with books that do not balance", viewFigures(&wrong).OK, false)
	const nothing = `{"sale_id":"S","now":"2027-01-15T08:00:00.123Z","state":"open","status":"live","revision":7,"quota":13,"available":10,"held":1,"paid":2,` +
		`"requests":0,"purchases":{},"orders":{},"units":{},"books_at":null,"ok":false,"database":{"reachable":false},` +
		`"gate":{"reachable":false,"epoch":0,"open":false,"left":0,"inflight":0,"stream":0},"drift":0,"drift_at":null,` +
		`"stages":{},"instances":[]}`
	books := model.Books{Orders: map[model.OrderStatus]int64{}, Units: map[model.OrderStatus]int64{}}
	empty := &service.SaleFigures{Now: at, Offer: offer, Books: books}
	check.Same(t, "no figures", string(check.Must(json.Marshal(viewFigures(empty)))), nothing)
}

// openConsoles returns how many streams are open for the staff.
func (w *wire) openConsoles() int { return w.api.Live.Consoles.all.Taken() }
