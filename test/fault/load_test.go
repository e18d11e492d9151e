package fault

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashsale/test/kit/shop"
)

// crowd is how many buyers are active at once.
const crowd = 50

// load holds the answers of buyers who come until it is stopped.
type load struct {
	d    *drill
	end  context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	answered sync.Cond // an attempt was added
	attempts []shop.Attempt
}

// manner is how a crowd comes. If every is 0, each buyer comes as soon as an earlier one has its answer.
type manner struct {
	every time.Duration          // one buyer of the whole crowd in this time
	then  func(shop.Attempt)     // called after each answer
	to    func(buyer int) string // the address of a buyer's instance
}

func inTurn(urls ...string) func(buyer int) string {
	return func(buyer int) string { return urls[buyer%len(urls)] }
}

// newLoad returns a load without buyers, and a channel that is closed at its end.
func (d *drill) newLoad() (*load, <-chan struct{}) {
	ctx, end := context.WithCancel(d.Context())
	l := &load{d: d, end: end}
	l.answered.L = &l.mu
	return l, ctx.Done()
}

// crowdAt starts a crowd at a sale. Each buyer makes one attempt for one unit, under a key of its own.
func (d *drill) crowdAt(sale string, m manner) *load {
	l, ended := d.newLoad()
	prefix := fmt.Sprintf("u%d", time.Now().UnixNano())
	turns := turns(ended, m.every)
	var next atomic.Int64
	for range crowd {
		l.work.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-turns:
				}
				n := int(next.Add(1))
				a := shop.Attempt{User: fmt.Sprintf("%s-%d", prefix, n), URL: m.to(n)}
				a.Key = "key-" + a.User
				d.Buy(&a, sale)
				l.note(a)
				if m.then != nil {
					m.then(a)
				}
			}
		})
	}
	d.Cleanup(func() { l.stop() })
	return l
}

// turns lets one buyer come in each period, or, if every is 0, as many as can. If times don't count, every 0 lets the
// whole crowd come four times a second instead: the concurrency is the same, but other rows get processor time. A turn
// that no buyer takes is lost.
func turns(ended <-chan struct{}, every time.Duration) <-chan struct{} {
	together := 1
	switch {
	case every > 0:
	case timed:
		now := make(chan struct{})
		close(now)
		return now
	default:
		every, together = 250*time.Millisecond, crowd
	}
	turns := make(chan struct{}, together)
	go func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			for range together {
				select {
				case turns <- struct{}{}:
				default:
				}
			}
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
		}
	}()
	return turns
}

func (l *load) note(a shop.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = append(l.attempts, a)
	l.answered.Broadcast()
}

// more waits until so many more attempts have ended, with any answer. After a minute the row fails.
func (l *load) more(answers int) {
	l.d.Helper()
	deadline := time.Now().Add(time.Minute)
	defer time.AfterFunc(time.Minute, l.answered.Broadcast).Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for want := len(l.attempts) + answers; len(l.attempts) < want; l.answered.Wait() {
		if !time.Now().Before(deadline) {
			l.d.Slowf("not %d answers in a minute: %v", answers, shop.Tally(l.attempts))
			return
		}
	}
}

func (l *load) soFar() []shop.Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.attempts)
}

func (l *load) stop() []shop.Attempt {
	l.end()
	l.work.Wait()
	l.d.record.add(toBuy, l.attempts...)
	return l.attempts
}

// Requests of a client.
const (
	toBuy    = "buy"
	toCancel = "cancel"
	toPay    = "pay"
)

// What an answer means to its client. After a 202, a 503 or no answer the outcome is unknown.
const (
	saidYes     = "ok"
	saidNo      = "refused"
	saidNothing = "unknown"
)

func said(status int) string {
	switch {
	case status == http.StatusOK || status == http.StatusCreated:
		return saidYes
	case status >= 400 && status < 500:
		return saidNo
	default:
		return saidNothing
	}
}

// deed is a request of a client, with its order and its answer.
type deed struct {
	does string
	shop.Attempt
}

// record holds what the clients of a row did and were told. Adding the same deed twice stores it once.
type record struct {
	mu    sync.Mutex
	deeds map[deed]struct{}
	ends  map[end]struct{}
}

func (r *record) add(does string, attempts ...shop.Attempt) {
	for _, a := range attempts {
		if does == toCancel && said(a.Status) == saidYes {
			r.ended(a, "cancelled")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deeds == nil {
		r.deeds = map[deed]struct{}{}
	}
	for _, a := range attempts {
		r.deeds[deed{does, a}] = struct{}{}
	}
}

// event is one line of a record: a client's request (invoke), or its answer (ok, refused, unknown).
type event struct {
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	Does   string    `json:"does"`
	User   string    `json:"user"`
	Key    string    `json:"key"`
	URL    string    `json:"url,omitempty"`
	Order  string    `json:"order,omitempty"`
	Status int       `json:"status,omitempty"`
	Code   string    `json:"code,omitempty"`
}

// events returns all events in the order of time.
func (r *record) events() (list []event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range r.deeds {
		list = append(list, event{At: a.Invoked, Event: "invoke", Does: a.does, User: a.User, Key: a.Key, URL: a.URL}, event{
			At: a.Answered, Event: said(a.Status), Does: a.does, User: a.User, Key: a.Key, Order: a.OrderID, Status: a.Status, Code: a.Code,
		})
	}
	slices.SortFunc(list, func(a, b event) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.User, b.User), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Event, b.Event))
	})
	return list
}

// recordFolder is where the full form stores its records, relative to the folder of this package.
const recordFolder = "../../build/drill"

// unfit matches the characters of a row's name that a file name should not have.
var unfit = regexp.MustCompile(`[^a-z0-9]+`)

// artifact returns the path of a file that a row writes. The short form keeps none, unless `go test -artifacts` is set.
func artifact(t testing.TB, name, ext string) string {
	t.Helper()
	folder := recordFolder
	if !full {
		folder = t.ArtifactDir()
	} else if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Error(err)
	}
	return filepath.Join(folder, unfit.ReplaceAllString(strings.ToLower(name), "-")+ext)
}

// write writes the record to a file as JSON, one event per line.
func (r *record) write(t testing.TB, path string) {
	t.Helper()
	var out bytes.Buffer
	lines, err := json.NewEncoder(&out), error(nil)
	for _, e := range r.events() {
		err = errors.Join(err, lines.Encode(e))
	}
	if err := errors.Join(err, os.WriteFile(path, out.Bytes(), 0o600)); err != nil {
		t.Error(err)
	}
}
