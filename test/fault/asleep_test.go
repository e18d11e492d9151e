package fault

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"flashsale/test/kit/shop"
)

// asleepRows are instances that stand still, and rows of one line that are locked.
var asleepRows = []row{
	{93, "an instance stands still again and again, for 0.05 to 1 s, while units of a rush return", asleepExpected, asleep("rush")},
	{93, "an instance stands still again and again, for 0.05 to 1 s, while waiting lists begin", asleepExpected, listsBegin},
	{93, "an instance stands still again and again, for 0.05 to 1 s, while units of a line return", asleepExpected, asleep("line")},
	{93, "an instance stands still again and again, for 0.05 to 1 s, while units of a draw return to its waiting list", asleepExpected, asleep("draw")},
	{94, "a row of one line is locked for long, in one table after the other", "the other line is called as before", lockedLine},
}

const asleepExpected = "nobody who was told yes, or was called, is told no by either instance"

// asleep returns a row in a mode. Holders of units cancel, again and again. Whoever is called, or comes to a rush, asks under one
// key at both instances in turn, one of which stands still now and then.
func asleep(mode string) func(d *drill) {
	return func(d *drill) {
		d.stores()
		sleepy, awake := d.Start(), d.Start()
		quota, inLine := size(8, 40), mode != "rush"
		s := &sleeper{drill: d, client: d.manyConnections(), asked: map[string]bool{}}
		if inLine {
			d.queue(quota, shop.Document{"mode": mode, "waiting_list": mode == "draw", "call_seconds": 3600}, sleepy, awake)
			d.enter("u", size(60, 600), d.urls...)
			d.starts(3600)
			d.lineIs("the first units are called or drawn", func(b *lineBooks) bool { return b.phase == "calling" && b.reserved == 0 })
			s.holdDrawn()
		} else {
			d.open(quota, sleepy, awake)
			inParallel(4, quota, func(i int) { s.ask(fmt.Sprint("first-", i), i, false) })
		}
		wake := d.meanwhile(1, 200*time.Millisecond, func(int, int) { s.nap(sleepy) })
		for round := range size(12, 60) {
			s.cancelSome(2)
			if inLine {
				b := d.lineIs("whoever is next is called", called)
				s.askCalled(&b)
			} else {
				inParallel(4, 8, func(i int) { s.ask(fmt.Sprint("next-", round, "-", i), i, false) })
			}
		}
		wake()
		d.attempts = s.told
		if what := s.happened(); inLine {
			d.served("%s", what)
		} else {
			d.finish("%s", what)
		}
	}
}

// listsBegin sells out one rush after the other, until the sleepy instance may refuse from memory. While that
// instance stands still, people enter, units come back, and whoever is called buys at the other one.
func listsBegin(d *drill) {
	d.stores()
	sleepy, awake := d.Start(), d.Start()
	const quota, waiting = 4, 8
	s := &sleeper{drill: d, client: d.manyConnections(), asked: map[string]bool{}}
	rounds := size(4, 40)
	for round := range rounds {
		d.urls, d.attempts = nil, nil
		d.queue(quota, shop.Document{
			"mode": "rush", "waiting_list": true, "call_seconds": 3600, "starts_at": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339),
		}, sleepy, awake)
		s.told, s.holders = nil, nil
		clear(s.asked)
		inParallel(4, quota, func(i int) { s.ask(fmt.Sprint("first-", i), i, false) })
		n := 0
		d.until(time.Minute, "the sleepy instance may refuse from memory", func() (bool, error) {
			a := shop.Attempt{User: fmt.Sprint("none-", n), Key: "key", URL: sleepy.URL}
			_, err := d.knock(s.client, &a, d.sale)
			n++
			leased, failed := d.count("SELECT COUNT(*) FROM stock WHERE sale_id = ? AND refusing_until_ms > returning_at_ms + 1000", d.sale)
			return leased == 1, errors.Join(err, failed)
		})
		nap := make(chan struct{})
		go func() {
			s.nap(sleepy)
			close(nap)
		}()
		d.enter(fmt.Sprint("w", round), waiting, awake.URL)
		stale := d.meanwhile(1, 20*time.Millisecond, func(int, int) { d.staleLease() }) // the caller may be asleep
		s.cancelSome(quota)
		b := d.lineIs("whoever waits is called", called)
		s.askCalled(&b)
		stale()
		<-nap
		d.attempts = s.told
		d.served("")
	}
	d.result.Happened = fmt.Sprintf("%d sales; %s", rounds, s.happened())
}

// sleeper is what the buyers of a row do and hear.
type sleeper struct {
	*drill
	client    *http.Client
	asked     map[string]bool // who was called and has asked
	requests  atomic.Int64
	naps      atomic.Int64
	cancelled int

	mu      sync.Mutex
	told    []shop.Attempt // the last answer to each key
	holders []shop.Attempt // who has a unit
}

func (s *sleeper) happened() string {
	return fmt.Sprintf("%d requests at two instances, one of which stood still %d times; %d orders were cancelled", s.requests.Load(), s.naps.Load(), s.cancelled)
}

// nap lets an instance stand still, and then be awake for a while.
func (s *sleeper) nap(i *shop.Instance) {
	i.Signal(syscall.SIGSTOP)
	<-time.After(50*time.Millisecond + rand.N(950*time.Millisecond))
	i.Signal(syscall.SIGCONT)
	s.naps.Add(1)
	<-time.After(100*time.Millisecond + rand.N(400*time.Millisecond))
}

// askCalled lets all who are called and have not asked yet ask, first at the instance that is awake.
func (s *sleeper) askCalled(b *lineBooks) {
	callees := slices.DeleteFunc(b.callees(), func(user string) bool { return s.asked[user] })
	for _, user := range callees {
		s.asked[user] = true
	}
	inParallel(4, len(callees), func(i int) { s.ask(callees[i], 1, true) })
}

// ask sends a purchase under one key to both instances in turn, four times, beginning with the one at a place. The answer must not
// be no once it was yes, and never be no to a buyer who is called.
func (s *sleeper) ask(user string, at int, isCalled bool) {
	var yes, last shop.Attempt
	for try := range 4 {
		a := shop.Attempt{User: user, Key: "key-" + user, URL: s.urls[(at+try)%2]}
		_, err := s.knock(s.client, &a, s.sale)
		s.requests.Add(1)
		switch {
		case err != nil || said(a.Status) == saidNothing:
			s.Slowf("%s: %d %s, %v", a.Key, a.Status, a.Code, err)
			continue
		case a.Confirmed():
			yes = a
		case yes.OrderID != "":
			s.Errorf("%s was told yes, then %d %s", a.Key, a.Status, a.Code)
		case isCalled:
			s.Errorf("%s was called, and told %d %s", a.Key, a.Status, a.Code)
		}
		last = a
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case yes.OrderID != "":
		s.told, s.holders = append(s.told, yes), append(s.holders, yes)
	case last.Status != 0:
		s.told = append(s.told, last)
	}
}

// holdDrawn takes the winners of a draw for holders who were told yes.
func (s *sleeper) holdDrawn() {
	s.Helper()
	rows, err := s.books.db.QueryContext(s.Context(), "SELECT id, user_id, idempotency_key FROM orders WHERE sale_id = ? AND source = 'draw'", s.sale)
	s.ok(err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		a := shop.Attempt{URL: s.urls[0], Status: http.StatusCreated}
		s.ok(rows.Scan(&a.OrderID, &a.User, &a.Key))
		s.holders, s.told = append(s.holders, a), append(s.told, a)
	}
	s.ok(rows.Err())
}

// cancelSome lets so many holders cancel, at both instances in turn.
func (s *sleeper) cancelSome(n int) {
	s.Helper()
	for i := range min(n, len(s.holders)) {
		at := rand.IntN(len(s.holders))
		holder := s.holders[at]
		s.holders = slices.Delete(s.holders, at, at+1)
		answer := s.cancel(holder, s.urls[i%2])
		if answer.Status != http.StatusOK {
			s.wrong(answer.Status)("cancel: %d %s", answer.Status, answer.Code)
			continue
		}
		s.record.add(toCancel, holder)
		s.cancelled++
	}
}

// lockedLine locks a row of one line in each table that a caller reads. Meanwhile units come back to another line, whose next
// entrants are called.
func lockedLine(d *drill) {
	d.stores()
	a, b := d.Start(), d.Start()
	d.queue(size(6, 20), nil, a, b)
	troubled := d.sale
	d.enter("u", 4*d.quota, d.urls...)
	d.starts(3600)
	d.lineIs("the first line is called", called)
	d.pause()
	d.watched()
	d.queue(d.quota, nil)
	d.enter("u", 4*d.quota, d.urls...)
	d.starts(3600)
	first := d.lineIs("the second line is called", called)
	holders := d.buyers(first.callees(), d.urls...)
	d.told(holders, "201")
	longest := time.Duration(0)
	for i, table := range []string{"sale_lines", "stock", "calls", "entries"} {
		func() {
			tx, err := d.books.db.BeginTx(d.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // locks no gaps
			d.ok(err)
			defer func() { _ = tx.Rollback() }()
			d.lockRows(tx, table, "sale_id = ?", troubled)
			// Something is to be done for the locked line too.
			holder := holders[i]
			if answer := d.cancel(holder, b.URL); answer.Status != http.StatusOK {
				d.wrong(answer.Status)("cancel: %d %s", answer.Status, answer.Code)
			}
			d.record.add(toCancel, holder)
			began := time.Now()
			d.lineIs("the unit of the other line is behind a call, while a row of "+table+" is locked", called)
			longest = max(longest, time.Since(began))
		}()
	}
	if longest > size(20*time.Second, 2*time.Second) {
		d.Slowf("a unit waited %s for its call", longest)
	}
	d.served("rows of four tables were locked, one after the other; a unit of the other line waited %s at most", ms(longest))
}

// lockRows locks rows of a table.
func (d *drill) lockRows(tx *sql.Tx, table, where, of string) {
	d.Helper()
	var n int
	d.ok(tx.QueryRowContext(d.Context(), "SELECT COUNT(*) FROM (SELECT 1 FROM "+table+" WHERE "+where+" FOR UPDATE) AS locked", of).Scan(&n))
	if n == 0 {
		d.Errorf("%s has no such row", table)
	}
}
