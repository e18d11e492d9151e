package fault

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"flashsale/test/kit/shop"
)

// lineRows are faults and attacks while a sale is in line. Each row compares the books with the invariants of lines all the
// time, see lineChecker.
var lineRows = []row{
	{66, "the caller of a line is killed before and after each of its steps", "the next one goes on from the rows", callerDies},
	{66, "the caller of a draw is killed before and after each of its steps", "each winner has one order", drawerDies},
	{67, "two callers at once, each with a stale lease, while entrants come, leave and buy", "no entry is called twice, no unit is lost", twoCallers},
	{68, "mariadbd is killed and restarted while calls run", "503; calls get the time back, nobody is called twice", callsWithoutDatabase},
	{69, "Redis is down from before the entries to the end", "entries, calls and purchases go on", lineWithoutRedis},
	{70, "the caller is frozen for longer than a call", "the other calls on; nothing is called twice when it goes on", callerFrozen},
	{71, "all called and nobody comes, then all come in the last second of the call", "the next are called; who is told yes has an order", lateComers},
	{72, "the quota is raised while calls run", "each unit goes to the next in line", raisedInLine},
	{73, "tickets of other users, and path tokens from before the call and from before the waiting list", "not_your_turn; the units go to those who wait", keptPaths},
	{74, "half of the entrants are bots, and come first", "they win about half of the units", botsFirst},
	{75, "the clocks of instances are an hour off, either way", "calls begin and end by the clock of the database", lineWithWrongClocks},
	{76, "the beacon of a draw hangs, fails and answers falsely, and an instance that asks is killed", "the draw waits for the round", drawWithoutBeacon},
}

// callerDies kills one caller after the other, each at another step, before another one is started. The lease of the dead
// ends at once, as in the two seconds in which an instance is started again.
func callerDies(d *drill) {
	d.stores()
	d.failpoints()
	first := d.mortal("before seal a line", 1)
	d.queue(size(20, 200), nil, first)
	d.enter("u", 3*d.quota, first.URL)
	d.starts(1)
	d.dead(first)
	dies := func(point string) {
		d.staleLease()
		d.dead(d.mortal(point, 1))
	}
	dies("after seal a line")
	dies("before call the next")
	dies("after call the next")
	b := d.lineIs("all calls are over", func(b *lineBooks) bool {
		return len(b.turns) == d.quota && !slices.ContainsFunc(b.turns, func(t turn) bool { return !t.over })
	})
	if b.serving != int64(d.quota) {
		d.Errorf("the dead have called %d, serving %d", len(b.turns), b.serving)
	}
	dies("before end calls")
	dies("after end calls")
	d.callsLast(60)
	d.staleLease()
	d.urls = []string{d.Start().URL}
	b = d.lineIs("all units are behind calls", called)
	if lapsed := len(b.usersIn("lapsed")); lapsed != d.quota || len(b.turns) != d.quota {
		d.Errorf("%d calls have lapsed and %d run, want %d each", lapsed, len(b.turns), d.quota)
	}
	d.served("killed at 6 steps; %d called and lapsed, the next %d called", d.quota, len(b.turns))
}

// twoCallers ends the lease all the time, so that both instances call. Calls are short. Of those who are called some buy at
// once, some when the call ends, and some leave at the same moment as they buy, each at both instances.
func twoCallers(d *drill) {
	d.stores()
	a, b := d.Start(), d.Start()
	d.queue(size(40, 300), nil, a, b)
	d.enter("early", 2*d.quota, d.urls...)
	stale := d.meanwhile(2, 20*time.Millisecond, func(int, int) { d.staleLease() })
	d.starts(1)
	var mu sync.Mutex
	tried, answers := map[string]bool{}, map[string]int{}
	count := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		answers[what]++
	}
	var came, work sync.WaitGroup
	came.Go(func() { d.enter("late", d.quota, d.urls...) })
	again := func(user string) { // left, and comes back: there is no second entry
		if status, _ := d.entersBy(user, b.URL); status != http.StatusOK {
			d.wrong(status)("%s enters again: %d", user, status)
		}
	}
	buy := func(user string, i int) {
		at := d.buy(user, "key-"+user, d.urls[i%2])
		mu.Lock()
		defer mu.Unlock()
		d.attempts = append(d.attempts, at)
	}
	turns := 0
	d.lineIs("most units are sold", func(books *lineBooks) bool {
		for _, t := range books.turns {
			if tried[t.user] {
				continue
			}
			tried[t.user] = true
			turns++
			switch i := turns; i % 4 {
			case 0: // nobody comes
			case 1:
				work.Go(func() { buy(t.user, i) })
			case 2: // at the end of the call
				work.Go(func() {
					<-time.After(time.Duration(700+i*37%500) * time.Millisecond)
					buy(t.user, i)
					buy(t.user, i+1)
				})
			case 3: // buys and leaves at once
				work.Go(func() { buy(t.user, i) })
				work.Go(func() {
					count(fmt.Sprint("leave ", d.leave(t.user, d.urls[(i+1)%2])))
					again(t.user)
				})
			}
		}
		return books.held*4 > books.quota*3 || books.waiting() == 0
	})
	work.Wait()
	came.Wait()
	d.callsLast(60)
	stale()
	d.served("%d called by two callers; %s", turns, listed(answers))
}

// callsWithoutDatabase kills the database for longer than the calls have left.
func callsWithoutDatabase(d *drill) {
	db := d.ownDatabase()
	a, b := d.Start("--ack-wait", "300ms"), d.Start("--ack-wait", "300ms")
	const callSeconds = 5
	d.queue(size(20, 200), shop.Document{"call_seconds": callSeconds}, a, b)
	d.enter("u", 3*d.quota, d.urls...)
	began := time.Now()
	d.starts(callSeconds)
	before := d.lineIs("all units are behind calls", called)
	prompt := before.callees()[:d.quota/4]
	d.buyers(prompt, d.urls...)
	before, err := d.books.line(d.Context(), d.sale)
	d.ok(err)
	db.Kill()
	down := time.Now()
	if down.Sub(began) > callSeconds*time.Second {
		d.FatalSlowf("the first calls may have ended before the database was killed: they began %s ago", ms(down.Sub(began)))
	}
	meanwhile := d.buyers(before.callees(), d.urls...)
	d.told(meanwhile, "503 unavailable")
	if status, _ := d.entersBy("away", a.URL); status != http.StatusServiceUnavailable {
		d.wrong(status)("an entry without a database: %d", status)
	}
	time.Sleep(time.Until(down.Add((callSeconds + 1) * time.Second))) // all calls would be over, and no caller has seen the line
	db.Restart()
	d.until(recoveryTime, "the calls have the time back", func() (bool, error) {
		left, err := d.count("SELECT COUNT(*) FROM calls WHERE sale_id = ? AND until_ms > 1000 * UNIX_TIMESTAMP(NOW(3))", d.sale)
		return left == len(before.turns), err
	})
	var left int64 // until the calls are over, in milliseconds
	d.ok(d.sql("SELECT COALESCE(CAST(MIN(until_ms) - 1000 * UNIX_TIMESTAMP(NOW(3)) AS SIGNED), 0) FROM calls WHERE sale_id = ?", d.sale).Scan(&left))
	last := time.Now().Add(time.Duration(left) * time.Millisecond)
	after, err := d.books.line(d.Context(), d.sale)
	d.ok(err)
	if time.Now().After(last) {
		d.FatalSlowf("the calls were over before the row has looked")
	}
	if after.serving != before.serving || !slices.Equal(after.callees(), before.callees()) {
		d.Errorf("before %q were called, and after %q", before.callees(), after.callees())
	}
	bought := d.buyers(before.callees(), d.urls...)
	if time.Now().After(last) {
		d.Slowf("the calls were over before all had bought: %s", tally(bought))
		d.told(bought, "201", "409 call_ended", "409 not_your_turn", "403 bad_path")
	} else {
		d.told(bought, "201")
	}
	d.served("%d calls of %d s survived %s without a database, and all of them bought", len(before.turns), callSeconds, ms(time.Since(down)))
}

// lineWithoutRedis kills Redis before anybody enters. The instances hear nothing of each other.
func lineWithoutRedis(d *drill) {
	d.stores()
	a, b := d.Start("--ack-wait", "300ms"), d.Start("--ack-wait", "300ms")
	d.Redis.Kill()
	d.queue(size(30, 300), nil, a, b)
	d.enter("u", 2*d.quota, d.urls...)
	d.starts(60)
	books := d.lineIs("all units are behind calls", called)
	d.told(d.buyers(books.callees()[d.quota/2:], d.urls...), "201")
	for _, user := range books.callees()[:d.quota/2] {
		if status := d.leave(user, b.URL); status != http.StatusOK {
			d.wrong(status)("%s leaves: %d", user, status)
		}
	}
	d.lineIs("the next are called", func(b *lineBooks) bool { return len(b.turns) == d.quota/2 })
	d.served("%d entries, %d left", 2*d.quota, d.quota/2)
	d.told(d.attempts, "201")
}

// callerFrozen stops the instance that calls until the calls are over that it made.
func callerFrozen(d *drill) {
	d.stores()
	a := d.Start()
	d.queue(size(20, 200), nil, a)
	d.enter("u", 3*d.quota, a.URL)
	d.starts(size(1, 5))
	first := d.lineIs("all units are behind calls", called)
	a.Signal(syscall.SIGSTOP)
	frozen := time.Now()
	b := d.Start()
	d.callsLast(60)
	second := d.lineIs("the other one ends the calls and calls the next", func(b *lineBooks) bool {
		return b.serving == int64(2*d.quota) && len(b.turns) == d.quota
	})
	stood := time.Since(frozen)
	d.buyers(second.callees()[:d.quota/2], b.URL)
	a.Signal(syscall.SIGCONT)
	d.urls = []string{a.URL, b.URL}
	late := d.buyers(first.callees(), a.URL)
	d.told(late, "409 call_ended", "409 not_your_turn")
	d.served("frozen for %s; %d calls ended, the next %d made by the other", ms(stood), len(first.turns), len(second.turns))
}

// lateComers lets all calls of a first round lapse, and has all buyers of the second round come around the end of the call,
// at both instances.
func lateComers(d *drill) {
	d.stores()
	a, b := d.Start(), d.Start()
	d.queue(size(40, 400), nil, a, b)
	d.enter("u", 4*d.quota, d.urls...)
	d.starts(size(1, 5))
	d.lineIs("all have lapsed, and the next are called", func(b *lineBooks) bool {
		return len(b.usersIn("lapsed")) == d.quota && len(b.turns) == d.quota
	})
	second, err := d.books.line(d.Context(), d.sale)
	d.ok(err)
	var left int
	d.ok(d.sql("SELECT COALESCE(CAST(MIN(until_ms) - 1000 * UNIX_TIMESTAMP(NOW(3)) AS SIGNED), 0) FROM calls WHERE sale_id = ?", d.sale).Scan(&left))
	d.callsLast(60)
	callees := second.callees()
	end := time.Now().Add(time.Duration(left) * time.Millisecond)
	late := make([]shop.Attempt, 2*len(callees))
	var work sync.WaitGroup
	for i := range late { // each twice, under two keys, in the 400 ms around the end
		work.Go(func() {
			user := callees[i/2]
			<-time.After(time.Until(end.Add(time.Duration(i*7%400-200) * time.Millisecond)))
			late[i] = d.buy(user, fmt.Sprint("key-", i%2, "-", user), d.urls[i%2])
		})
	}
	work.Wait()
	d.attempts = append(d.attempts, late...)
	// A path ends at most a second after the call: who comes after the call, and before a caller ends it, may find it expired.
	d.told(late, "201", "409 call_ended", "409 not_your_turn", "409 limit_reached", "403 bad_path")
	yes := shop.Tally(late)["201 "]
	d.served("%d called and nobody came; of %d in the last moment %d had an order", d.quota, len(callees), yes)
}

// raisedInLine adds units one by one while those who are called buy.
func raisedInLine(d *drill) {
	d.stores()
	a, b := d.Start(), d.Start()
	d.queue(size(10, 100), nil, a, b)
	d.enter("u", 4*d.quota, d.urls...)
	d.starts(60)
	d.lineIs("all units are behind calls", called)
	raised := 2 * d.quota
	var work sync.WaitGroup
	work.Go(func() {
		for range raised {
			d.change(b.URL, shop.Document{"add_quota": 1})
		}
	})
	d.lineIs("three times the quota is sold", func(books *lineBooks) bool {
		d.buyers(books.callees(), d.urls...)
		return books.held == int64(3*d.quota)
	})
	work.Wait()
	d.quota += raised
	d.served("%d units added to %d", raised, d.quota-raised)
	if books := d.Books(d.sale); books.Stock.Quota != int64(d.quota) {
		d.Errorf("the quota is %d, want %d", books.Stock.Quota, d.quota)
	}
}

// keptPaths tries to buy in a line by what somebody has from earlier, or from others.
func keptPaths(d *drill) {
	d.stores()
	a, b := d.Start(), d.Start()
	d.queue(size(10, 100), shop.Document{"mode": "rush", "waiting_list": true, "starts_at": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)}, a, b)
	path := func(user, url string, headers ...string) (int, string, string) {
		status, doc, err := d.Call(http.MethodPost, url+"/api/v1/sales/"+d.sale+"/path", d.Token(user), nil, headers...)
		if err != nil {
			d.Slowf("%v", err)
		}
		return status, text(doc, "path"), text(doc, "code")
	}
	by := func(user, path, key, url string) shop.Attempt {
		at := shop.Attempt{User: user, Key: key, URL: url, Invoked: time.Now()}
		status, doc, err := d.Call(http.MethodPost, url+"/api/v1/sales/"+d.sale+"/"+path+"/orders", d.Token(user), shop.Document{"quantity": 1}, "Idempotency-Key", key)
		if err == nil {
			at.Status, at.OrderID, at.Code = status, text(doc, "id"), text(doc, "code")
		}
		at.Answered = time.Now()
		return at
	}
	kept := map[string]string{}
	for i := range d.quota {
		user := fmt.Sprint("kept-", i)
		status, token, _ := path(user, d.urls[i%2])
		kept[user] = token
		d.mustBe(status == http.StatusOK, status, "a path: %d", status)
	}
	sold := d.Rush(d.sale, "first", d.quota, nil, d.urls...)
	d.attempts = append(d.attempts, sold...)
	d.told(sold, "201")
	tickets := map[string]string{}
	for i := range 2 * d.quota {
		user := fmt.Sprint("wait-", i)
		status, ticket := d.entersBy(user, d.urls[i%2])
		if tickets[user] = ticket; status != http.StatusCreated {
			d.wrong(status)("the waiting list: %d", status)
		}
	}
	var mu sync.Mutex
	var thieves []shop.Attempt
	round := 0
	steal := d.meanwhile(2, 20*time.Millisecond, func(worker, _ int) {
		for user, token := range kept {
			mu.Lock()
			round++
			key := fmt.Sprint("steal-", round)
			mu.Unlock()
			at := by(user, token, key, d.urls[worker])
			mu.Lock()
			thieves = append(thieves, at)
			mu.Unlock()
		}
	})
	for i, at := range sold {
		if answer := d.cancel(at, d.urls[i%2]); answer.Status != http.StatusOK {
			d.wrong(answer.Status)("cancel: %d", answer.Status)
		}
	}
	books := d.lineIs("those who wait are called", func(b *lineBooks) bool { return len(b.turns) == d.quota })
	callees := books.callees()
	// A path of a call that has ended, another user's path, another user's ticket.
	gone := callees[0]
	_, token, _ := path(gone, a.URL)
	if status := d.leave(gone, b.URL); status != http.StatusOK {
		d.wrong(status)("leave: %d", status)
	}
	strangers := []shop.Attempt{by(gone, token, "gone", a.URL), by(gone, token, "gone-2", b.URL)}
	d.told(strangers, "409 not_your_turn")
	_, token, _ = path(callees[1], a.URL)
	others := by("eve", token, "eve", b.URL)
	d.told([]shop.Attempt{others}, "403 bad_path", "403 invalid_path", "403 forbidden")
	if status, _, code := path("eve", a.URL, "Line-Ticket", tickets[callees[1]]); status != http.StatusConflict || code != "not_your_turn" {
		d.wrong(status)("with another's ticket: %d %s", status, code)
	}
	waiting := fmt.Sprint("wait-", 2*d.quota-1)
	if status, _, code := path(waiting, a.URL, "Line-Ticket", tickets[callees[1]]); status != http.StatusConflict || code != "not_your_turn" {
		d.wrong(status)("an entrant with the ticket of one who is called: %d %s", status, code)
	}
	steal()
	d.told(thieves, "409 not_your_turn", "409 sold_out")
	d.attempts = append(d.attempts, slices.Concat(thieves, strangers, []shop.Attempt{others})...)
	d.served("%d attempts under %d kept paths; %d units came back and went to those who wait", len(thieves), len(kept), d.quota)
}

// lineWithWrongClocks has an instance whose clock is ahead and one whose clock is behind, each of which calls in its turn.
func lineWithWrongClocks(d *drill) {
	d.stores()
	d.failpoints()
	a, b := d.StartWith([]string{"FLASHSALE_CLOCK_OFFSET=1h"}), d.StartWith([]string{"FLASHSALE_CLOCK_OFFSET=-1h"})
	d.queue(size(20, 200), nil, a, b)
	d.enter("u", 4*d.quota, d.urls...)
	d.meanwhile(1, 20*time.Millisecond, func(int, int) { d.staleLease() })
	if books, err := d.books.line(d.Context(), d.sale); err != nil || books.phase != "entering" {
		d.Errorf("%v, before the start it is %s", err, books.phase)
	}
	d.starts(60)
	books := d.lineIs("all units are behind calls", called)
	d.told(d.buyers(books.callees(), d.urls...), "201")
	off, err := d.count("SELECT COUNT(*) FROM orders WHERE sale_id = ? AND ABS(created_at_ms - 1000 * UNIX_TIMESTAMP(NOW(3))) > 1800000", d.sale)
	if err != nil || off > 0 || len(books.turns) != d.quota {
		d.Errorf("%d called; %d orders are not of now, %v", len(books.turns), off, err)
	}
	d.served("%d called and confirmed by instances an hour ahead and behind", len(books.turns))
}
