package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

// entrants is a database with the entries of a line, which it returns in pages.
type entrants struct {
	pages  int
	failAt int // the page that can't be read, of all that are asked for; 0: none
	asked  atomic.Int64
}

const (
	entrantsPage = 500
	drawPath     = "/api/v1/sales/" + benchSale + "/draw.json"
	proofPath    = "/api/v1/sales/" + benchSale + "/entries/mine/proof"
)

func (e *entrants) Sealing(context.Context, string) (model.Sealing, error) {
	return model.Sealing{Entries: int64(e.pages * entrantsPage)}, nil
}

func (*entrants) EntryOf(context.Context, string, string) (model.LineEntry, bool, error) {
	return model.LineEntry{UserID: benchUser}, true, nil
}

func (e *entrants) LineEntries(context.Context, string, int64) iter.Seq2[[]model.LineEntry, error] {
	return func(yield func([]model.LineEntry, error) bool) {
		for first := 0; first < e.pages*entrantsPage; first += entrantsPage {
			if e.asked.Add(1) == int64(e.failAt) {
				yield(nil, errors.New("the database is gone"))
				return
			}
			page := make([]model.LineEntry, entrantsPage)
			for i := range page {
				page[i] = model.LineEntry{UserID: fmt.Sprint("u-", first+i+1), Number: int64(first + i), Quantity: 1}
			}
			if !yield(page, nil) {
				return
			}
		}
	}
}

func (*entrants) DrawnNumbers(context.Context, string) ([]int64, int64, error) { return nil, 0, nil }

// open opens a shop whose sale has these entries in its line.
func (e *entrants) open(t *testing.T) *wire {
	s := newShop(t)
	hash := strings.Repeat("00", 32)
	s.offer.Mode, s.offer.Stock.Lined = model.ModeLine, model.InLine
	s.offer.Line = model.Line{Phase: model.PhaseOver, Sealed: int64(e.pages * entrantsPage), Root: hash, Commitment: hash, Secret: hash, Seed: hash}
	s.refresh()
	s.api.Lines.Proofs = service.NewProofs(e, s.offers.Catalog, nil)
	return s.open()
}

// Readers who take a proof slowly, or not at all, delay nobody else, and are given up after a while.
func TestSlowReadersOfProofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &entrants{pages: 4}
		w := e.open(t)
		began := time.Now()
		slow := w.connect(drawPath)
		for range 4 {
			w.connect(drawPath)
		}
		synctest.Wait() // the server waits for the readers
		for _, path := range []string{drawPath, proofPath} {
			res, _ := w.ask(path)
			var doc struct{ Tags, Path []string }
			check.Same(t, path+": status", res.StatusCode, http.StatusOK)
			check.NoError(t, json.NewDecoder(res.Body).Decode(&doc))
			check.Same(t, path+": tags", len(doc.Tags) == 2000 || len(doc.Path) == 11, true)
		}
		check.Same(t, "time that it took", time.Since(began), 0)
		passes(exportPatience)
		part, err := io.ReadAll(slow)
		check.Same(t, "the slow reader gets all", err != nil || strings.Contains(string(part), `"tags"`), false)
	})
}

// One address has a few readers of proofs at once.
func TestReadersOfProofsOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := (&entrants{pages: 4}).open(t)
		for range proofReadersOfOne {
			w.connect(drawPath)
		}
		synctest.Wait()
		res, _ := w.ask(drawPath)
		check.Same(t, "status of one more", res.StatusCode, http.StatusTooManyRequests)
		passes(exportPatience)
		res, _ = w.ask(drawPath)
		check.Same(t, "status when they were given up", res.StatusCode, http.StatusOK)
	})
}

// A proof that fails does not look complete. Before the first part it is a refusal.
func TestProofCutShort(t *testing.T) {
	for page, want := range map[int]int{0: http.StatusOK, 1: http.StatusInternalServerError, 10: http.StatusOK, 12: http.StatusOK} {
		synctest.Test(t, func(t *testing.T) {
			res, _ := (&entrants{pages: 4, failAt: page}).open(t).ask(drawPath)
			body, err := io.ReadAll(res.Body)
			check.Same(t, "status", res.StatusCode, want)
			check.Same(t, "complete", err == nil, page < 2)
			if page == 1 {
				sameHeader(t, "refusal", res.Header, map[string]string{"Content-Type": problemJS, "Cache-Control": "no-store"})
			} else {
				sameHeader(t, "proof", res.Header, map[string]string{"Content-Type": jsonType, "Cache-Control": "public, max-age=3600"})
				check.Same(t, "valid", json.Valid(body), page == 0)
			}
		})
	}
}

// HEAD reads no entries.
func TestHeadOfProof(t *testing.T) {
	e := &entrants{pages: 40}
	w := e.open(t)
	head := w.serve(w.request(http.MethodHead, drawPath, ""))
	sameHeader(t, "head", head.Header(), map[string]string{"Content-Type": jsonType, "Cache-Control": "public, max-age=3600"})
	if head.Code != http.StatusOK || head.Body.Len() > 0 || e.asked.Load() > 0 {
		t.Errorf("status %d, %d bytes, %d pages were read", head.Code, head.Body.Len(), e.asked.Load())
	}
}
