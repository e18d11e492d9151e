//go:build bench && linux

package bench

import (
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashsale/internal/ranks"
	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

const (
	lineRoute = "/api/v1/sales/:sale/line"
	// entrants are enough for the turns of the row "entered in a line", in which nobody enters twice.
	entrants = 600_000
	// mostRepeated is the share of requests that may be repetitions: wrk sends a few requests twice.
	mostRepeated = 0.02
	// returns is how many units come back one after the other in the row "return to call".
	returns = 200
	// million and winners are the size of the draw that is measured.
	million, winners = 1_000_000, 10_000
	// mostPolls is how many requests for the state of a line may reach an instance behind nginx in a second.
	mostPolls = 3
)

// queue makes a sale of a mode whose entries are open, and which starts in an hour.
func (e *engine) queue(mode string, quota, each int) (id string) {
	e.t.Helper()
	now := time.Now().UTC()
	doc := e.Must(http.StatusCreated, "POST", e.url+"/api/v1/admin/sales", e.Operator(e.url), shop.Document{
		"title": "Bench", "price_cents": 990, "quota": quota, "limit_per_user": each, "mode": mode,
		"starts_at": now.Add(time.Hour).Format(time.RFC3339), "ends_at": now.Add(validity).Format(time.RFC3339),
	})
	id, _ = doc["id"].(string)
	e.sales, e.inLine = []string{id}, true
	return id
}

// begin lets a sale start now, and waits until its line is in a phase.
func (e *engine) begin(saleID, phase string) {
	e.t.Helper()
	e.Must(http.StatusOK, "PATCH", e.url+"/api/v1/admin/sales/"+saleID, e.Operator(e.url), shop.Document{"starts_at": time.Now().UTC().Format(time.RFC3339Nano)})
	e.reaches(saleID, phase)
}

func (e *engine) reaches(saleID, phase string) {
	e.t.Helper()
	shop.Recovered(e.t, "the line is "+phase, func() error {
		if at := e.line(saleID)["phase"]; at != phase {
			return fmt.Errorf("it is %v", at)
		}
		return nil
	})
}

func (e *engine) line(saleID string) shop.Document {
	e.t.Helper()
	return e.Must(http.StatusOK, "GET", e.url+"/api/v1/sales/"+saleID+"/line", "", nil)
}

// entered compares entries in a line, each of another user, with confirmed purchases on an engine of their own.
func entered(t *testing.T, b *run, r *Result) {
	plain := start(t, r, false)
	plain.sale(manyUnits, manyEach)
	plain.status = http.StatusCreated
	buys := plain.under(wrk(t, buyers, wrkConnections, false, func(i int) string { return plain.purchase(plain.sales[0], i) })(plain.url), wrkConnections)

	e := start(t, r, false)
	sale := e.queue("line", manyUnits, 1)
	e.status = http.StatusCreated
	enters := wrk(t, entrants, wrkConnections, false, func(i int) string {
		return e.request("POST", "/api/v1/sales/"+sale+"/entries", i, "{}")
	})(e.url)
	turns := 0
	b.compare(r, buys, e.under(func(seconds int, _ float64) Sample {
		from := float64(turns) / float64(b.rounds+1)
		turns++
		return enters(seconds, from)
	}, wrkConnections))
	r.note("control: confirmed purchases on an engine and stores of their own")
	r.least(r.ratio(), 1, "")
	figures := output(t, "curl", "--silent", "--fail", e.ops+"/metrics")
	counted := total(figures, `flashsale_http_request_seconds_count\{.*route="/api/v1/sales/:sale/entries",status="201"\}`)
	repeated := total(figures, `flashsale_http_request_seconds_count\{.*route="/api/v1/sales/:sale/entries",status="200"\}`)
	made := 0.0
	shop.Recovered(t, "the line shows all entries", func() error {
		if made, _ = e.line(sale)["entries"].(float64); made < counted {
			return fmt.Errorf("it shows %.0f of %.0f", made, counted)
		}
		return nil
	})
	if e.refused > 0 || made > counted+float64(e.left) || repeated > mostRepeated*made {
		r.void("%.0f entries are in the database, the engine counted %.0f, and %.0f that were made already; %d requests were refused",
			made, counted, repeated, e.refused)
	}
	e.accepted, e.left = 0, 0 // nobody bought
	e.check()
	plain.check()
}

// lineRead compares the public state of a line, while entrants wait, with the control.
func lineRead(t *testing.T, b *run, r *Result) {
	e := start(t, r, false)
	sale := e.queue("line", 10, 1)
	for i := range 100 {
		e.Must(http.StatusCreated, "POST", e.url+"/api/v1/sales/"+sale+"/entries", e.Token(userID(i)), shop.Document{})
	}
	e.begin(sale, "calling")
	e.status = http.StatusOK
	at := wrk(t, buyers, wrkConnections, false, func(i int) string { return e.request("GET", "/api/v1/sales/"+sale+"/line", i, "") })
	b.compare(r, at(e.mirror(b, "GET", lineRoute)), e.under(at(e.url), wrkConnections))
	r.least(r.ratio(), 0.95, "")
	r.most(e.each(statements), fewCalls, statements)
	e.accepted, e.left = 0, 0 // nobody bought
	e.check()
}

// lineBehindNginx counts the requests for the state of a line that reach the instance behind nginx, while clients ask nginx as
// often as they can.
func lineBehindNginx(t *testing.T, b *run, r *Result) {
	e := start(t, r, false)
	asked := func() float64 {
		return total(output(t, "curl", "--silent", "--fail", e.ops+"/metrics"), `flashsale_http_request_seconds_count\{.*route="`+lineRoute+`".*\}`)
	}
	for _, waiting := range []int{million / 100, million / 10, million} {
		sale := e.queue("line", 10, 1)
		e.fill(sale, waiting)
		e.begin(sale, "calling")
		door := shop.OpenDoor(t, "127.0.0.1", "X-Forwarded-For", "weighted.conf", "plain.conf", "server "+strings.TrimPrefix(e.url, "http://")+";")
		poll := wrk(t, buyers, wrkConnections, false, func(i int) string { // each from an address of its own, because nginx limits addresses
			return fmt.Sprintf("GET /api/v1/sales/%s/line HTTP/1.1\r\nHost: shop\r\nX-Forwarded-For: 10.%d.%d.%d\r\n\r\n",
				sale, 100+i/10_000, 100+i/100%100, 100+i%100)
		})(door.URL)
		var answered, reached []float64
		for range b.rounds {
			before, begun := asked(), time.Now()
			s := poll(b.seconds, 0)
			reached = append(reached, (asked()-before)/time.Since(begun).Seconds())
			answered = append(answered, s.RequestsPerSecond)
			if s.Refused+s.Errors > 0 {
				r.void("%d refusals and %d errors", s.Refused, s.Errors)
			}
		}
		r.note("%d in line: nginx answered %.0f requests a second, and %.2f reached the instance", waiting, spreadOf(answered).median, spreadOf(reached).median)
		r.Values = append(r.Values, reached...)
	}
	r.Unit = "/s"
	r.most(slices.Max(r.Values), mostPolls, "requests a second")
	e.audited()
}

// fill makes so many entries in a line, each of another user.
func (e *engine) fill(sale string, entries int) {
	e.t.Helper()
	_, err := e.root.ExecContext(e.t.Context(), "INSERT INTO "+e.schema()+".entries (sale_id, number, user_id, quantity, state, entered_at_ms) "+
		"SELECT ?, seq, CONCAT('u', LPAD(seq, 7, '0')), 1, 'waiting', 1 FROM "+e.schema()+".seq_0_to_"+strconv.Itoa(entries-1), sale)
	check.NoError(e.t, err)
	_, err = e.root.ExecContext(e.t.Context(), "UPDATE "+e.schema()+".sale_lines SET entries = ? WHERE sale_id = ?", entries, sale)
	check.NoError(e.t, err)
}

// returnToCall measures the time from the answer to an entrant who leaves while called to the moment at which the public
// state shows the next call.
func returnToCall(t *testing.T, b *run, r *Result) {
	e := start(t, r, false)
	sale := e.queue("line", 1, 1)
	for i := range returns + 1 {
		doc := e.Must(http.StatusCreated, "POST", e.url+"/api/v1/sales/"+sale+"/entries", e.Token(userID(i)), shop.Document{})
		check.Same(t, "number", doc["number"], any(float64(i)))
	}
	e.begin(sale, "calling")
	order := ranks.Order{N: returns + 1}
	seed, _ := e.line(sale)["seed"].(string)
	_, err := hex.Decode(order.Seed[:], []byte(seed))
	check.NoError(t, err)
	serving := func() int64 {
		n, _ := e.line(sale)["serving"].(float64)
		return int64(n)
	}
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	wait := func(rank int64) {
		for deadline := time.Now().Add(time.Minute); serving() <= rank; <-ticker.C {
			if time.Now().After(deadline) {
				t.Fatalf("rank %d is not called", rank)
			}
		}
	}
	wait(0)
	for rank := range int64(returns) {
		e.Must(http.StatusOK, "DELETE", e.url+"/api/v1/sales/"+sale+"/entries/mine", e.Token(userID(int(order.Number(rank)))), nil)
		left := time.Now()
		wait(rank + 1)
		r.Values = append(r.Values, float64(time.Since(left).Microseconds())/1000)
	}
	r.Unit = "ms"
	sorted := slices.Sorted(slices.Values(r.Values))
	r.most(sorted[int(math.Ceil(0.99*returns))-1], 1000, "ms p99")
	e.audited()
}

// aMillionEntries seals and draws a line of a million entries, and verifies it with the program, as a stranger would. The
// values are the times of these steps, without the download between them.
func aMillionEntries(t *testing.T, b *run, r *Result) {
	for range b.rounds {
		e := start(t, r, false)
		sale := e.queue("draw", winners, 1)
		e.fill(sale, million)
		begun := time.Now()
		e.begin(sale, "over")
		drawn := time.Now()
		file := filepath.Join(t.TempDir(), "draw.json")
		output(t, "curl", "--silent", "--fail", "--output", file, e.url+"/api/v1/sales/"+sale+"/draw.json")
		read := time.Now()
		output(t, e.Binary, "verify-draw", file)
		verified := time.Now()
		r.Values = append(r.Values, drawn.Sub(begun).Seconds()+verified.Sub(read).Seconds())
		info, err := os.Stat(file)
		check.NoError(t, err)
		r.note("sealed and drawn after %.2f s, draw.json of %d MB read in %.2f s, verified in %.2f s",
			drawn.Sub(begun).Seconds(), info.Size()/1e6, read.Sub(drawn).Seconds(), verified.Sub(read).Seconds())
		if n := e.Books(sale).Stock.Held; n != winners {
			r.void("%d units are held", n)
		}
		e.audited()
	}
	r.Unit = "s"
	r.most(spreadOf(r.Values).median, 5, r.Unit)
}
