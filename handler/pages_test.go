package handler

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"flashsale/model"
)

// The pages for people are made once for all who ask, and again as soon as what they show is another.
func TestPagesAreMadeOnChange(t *testing.T) {
	for _, path := range []string{"/", "/sales/" + benchSale} {
		t.Run(path, func(t *testing.T) {
			s, made := newShop(t), 0
			text := func() string {
				return fmt.Sprintf("%s %q %d %s", path, s.offer.Title, s.offer.Stock.Available, s.offer.State(s.now, s.offer.Stock.Available))
			}
			s.api.Home = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				made++
				if r.URL.Path != path {
					t.Errorf("Home is asked for %s", r.URL.Path)
				}
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				w.Header().Set("Cache-Control", "no-cache")
				w.Header().Set("Content-Security-Policy", "default-src 'none'")
				_, _ = fmt.Fprint(w, text())
			})
			for i, step := range saleChanges {
				step.change(s)
				s.refresh()
				for range 2 {
					w := s.get(path, "")
					header := w.Header()
					if w.Code != http.StatusOK || w.Body.String() != text() {
						t.Errorf("%s: %d %s, want %s", step.name, w.Code, w.Body, text())
					}
					if header.Get("Content-Type") != "text/html; charset=utf-8" || header.Get("Cache-Control") != "no-cache" ||
						header.Get("Content-Security-Policy") == "" || header.Get("Content-Length") != strconv.Itoa(len(text())) {
						t.Errorf("%s: headers %v", step.name, header)
					}
					again := s.get(path, header.Get("ETag"))
					if again.Code != http.StatusNotModified || again.Body.Len() != 0 || again.Header().Get("Content-Security-Policy") == "" {
						t.Errorf("%s, known already: %d %s %v", step.name, again.Code, again.Body, again.Header())
					}
					s.refresh() // finds nothing new
				}
				if made != i+1 {
					t.Fatalf("%s: made %d times, want %d", step.name, made, i+1)
				}
			}
		})
	}
}

// A page that never changes is made once.
func TestPagesThatNeverChange(t *testing.T) {
	s, made := newShop(t), 0
	s.api.Home = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		made++
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprint(w, "orders")
	})
	for range 3 {
		w := s.get("/orders", "")
		if w.Code != http.StatusOK || w.Body.String() != "orders" || s.get("/orders", w.Header().Get("ETag")).Code != http.StatusNotModified {
			t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
		}
	}
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

// The page for unknown paths does not depend on the path that is asked for first.
func TestMissingPage(t *testing.T) {
	s := newShop(t)
	s.api.Home = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if strings.HasPrefix(r.URL.Path, "/console/sales/") {
			_, _ = fmt.Fprint(w, "the console")
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, "nothing here")
	})
	for _, path := range []string{"/console/sales/a/b", "/nowhere"} {
		if w := s.ask(path, "Accept", "text/html"); w.Code != http.StatusNotFound || w.Body.String() != "nothing here" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// What is prepared once is compressed once, for whoever takes that; what is made for one request alone is not.
func TestPreparedAnswersAreCompressed(t *testing.T) {
	s := newShop(t)
	s.offer.Description = strings.Repeat("Cast iron. ", 100)
	s.refresh()
	s.api.Home = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if !strings.HasPrefix(r.URL.Path, "/sales/B") && r.URL.Path != "/nothing" {
			_, _ = fmt.Fprint(w, strings.Repeat("a page ", 1000))
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, strings.Repeat("nothing here ", 1000))
	})
	for path, compressed := range map[string]bool{
		"/": true, "/sales/" + benchSale: true, "/orders": true, "/console": true, "/api": true, "/openapi.yaml": true, "/nothing": true,
		"/api/v1/sales": true, "/api/v1/sales/" + benchSale: true,
		"/sales/BBBBBBBBBBBBBBBB": false, "/api/v1/time": false, "/healthz": false,
	} {
		plain, zipped := s.ask(path, "Accept", "text/html"), s.ask(path, "Accept", "text/html", "Accept-Encoding", "gzip, br")
		if encoding := zipped.Header().Get("Content-Encoding"); (encoding == "gzip") != compressed || plain.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: %q, compressed: %t", path, encoding, compressed)
		}
		if !compressed {
			continue
		}
		r, err := gzip.NewReader(zipped.Body)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(r); err != nil || !bytes.Equal(body, plain.Body.Bytes()) {
			t.Errorf("%s: unpacked it is another: %v", path, err)
		}
		if plain.Header().Get("Vary") != "Accept-Encoding" || zipped.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: Vary %q and %q", path, plain.Header().Get("Vary"), zipped.Header().Get("Vary"))
		}
	}
}

// What Home refuses is passed on as it is, and nobody else gets it.
func TestRefusedPagesAreNotKept(t *testing.T) {
	for _, path := range []string{"/", "/sales/" + benchSale, "/sales/BBBBBBBBBBBBBBBB", "/orders"} {
		t.Run(path, func(t *testing.T) {
			s, status := newShop(t), http.StatusServiceUnavailable
			s.api.Home = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "said by Home", status) })
			for _, status = range []int{http.StatusServiceUnavailable, http.StatusNotFound, http.StatusOK} {
				w := s.get(path, "*")
				if status == http.StatusOK {
					if w.Code != http.StatusNotModified {
						t.Errorf("a page: %d", w.Code)
					}
					continue
				}
				if w.Code != status || w.Body.String() != "said by Home\n" || w.Header().Get("ETag") != "" {
					t.Errorf("%d %s %v, want %d", w.Code, w.Body, w.Header(), status)
				}
			}
		})
	}
}

// A browser that comes for what isn't there gets Home's page about it, made once; everybody else, and whoever asks the
// API, gets the problem.
func TestPagesThatAreNotThere(t *testing.T) {
	s, made := newShop(t), 0
	s.api.Home = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		made++
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, "nothing here")
	})
	s.get("/", "") // makes the router
	made = 0
	const problem, page = "application/problem+json", "text/html; charset=utf-8"
	for _, tc := range []struct{ path, accept, want string }{
		{"/nothing", "text/html,application/xhtml+xml,*/*;q=0.8", page},
		{"/nothing/at/all", "text/html", page},
		{"/nothing", "*/*", problem},
		{"/nothing", "", problem},
		{"/api/v1/nothing", "text/html", problem},
		{"/api/v1/sales/BBBBBBBBBBBBBBBB", "text/html", problem},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.path, nil)
		r.Header.Set("Accept", tc.accept)
		w := httptest.NewRecorder()
		s.router.ServeHTTP(w, r)
		if w.Code != http.StatusNotFound || w.Header().Get("Content-Type") != tc.want || (w.Body.String() == "nothing here") != (tc.want == page) {
			t.Errorf("%s, Accept %q: %d %v %s", tc.path, tc.accept, w.Code, w.Header(), w.Body)
		}
	}
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

// A page of all sales that was made before the clock was set back shows what hasn't happened yet.
func TestPageOfSalesFollowsTheClockBack(t *testing.T) {
	s := newShop(t)
	s.api.Home = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, s.offer.State(s.now, s.offer.Stock.Available))
	})
	for _, step := range []struct {
		start bool
		want  model.SaleState
	}{{true, model.StateOpen}, {false, model.StateUpcoming}, {true, model.StateOpen}} {
		s.now = s.offer.StartsAt
		if !step.start {
			s.now = s.now.Add(-1)
		}
		if got := s.get("/", "").Body.String(); got != string(step.want) {
			t.Errorf("%s, want %s", got, step.want)
		}
	}
}
