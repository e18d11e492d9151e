package fault

import (
	"database/sql"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"flashsale/model"
	"flashsale/test/kit/shop"
)

// lookups returns how many reads the database and how many commands Redis have had from all their clients.
func (d *drill) lookups(s *shop.Shop, db *sql.DB) (reads, commands int64) {
	d.Helper()
	var name string
	if err := db.QueryRowContext(d.Context(), "SHOW GLOBAL STATUS LIKE 'Com_select'").Scan(&name, &reads); err != nil {
		d.Fatal(err)
	}
	return reads, int64(d.figure(d.client(s.Redis), "stats", "total_commands_processed"))
}

func walkedIDs(d *drill) {
	s := shop.New(d)
	a := s.Start()
	const quota = 50
	sale := s.Sale(a.URL, quota)
	client := d.manyConnections()
	mine, theirs := shop.Attempt{User: "walker", Key: "key", URL: a.URL}, shop.Attempt{User: "owner", Key: "key", URL: a.URL}
	for _, at := range []*shop.Attempt{&mine, &theirs} {
		if s.Buy(at, sale); !at.Confirmed() {
			d.Fatalf("%s was told %d %s", at.User, at.Status, at.Code)
		}
	}
	books, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = books.db.Close() }()
	token := s.Token("walker")

	// The answers to all kinds of guesses have to be the same, and to take the same time.
	kinds := map[string]func(n int) string{
		"absent":              func(int) string { return sale + model.NewSaleID() + model.NewSaleID() },
		"someone else's":      func(int) string { return theirs.OrderID },
		"of one's own form":   func(int) string { return mine.OrderID[:32] + model.NewSaleID() },
		"with one's own tag":  func(int) string { return theirs.OrderID[:32] + mine.OrderID[32:] },
		"counted on from one": func(n int) string { return mine.OrderID[:44] + base32Digits(n) },
	}
	names := slices.Sorted(maps.Keys(kinds))
	times := map[string][]time.Duration{}
	walk := func(rounds int) (guesses int) {
		want := ""
		for n := range rounds {
			for _, kind := range names {
				id := kinds[kind](n)
				if id == mine.OrderID {
					continue
				}
				for _, route := range []struct{ method, tail string }{{http.MethodGet, ""}, {http.MethodDelete, ""}, {http.MethodPost, "/payments"}} {
					r := d.called(client, route.method, a.URL+"/api/v1/orders/"+id+route.tail, token, "", "X-Request-Id", "same")
					r.header.Del("Date")
					if got := fmt.Sprint(r.status, r.header, string(r.body)); want == "" {
						want = got
					} else if got != want {
						d.Fatalf("%s, %s%s: %s; the first was told %s", kind, route.method, route.tail, got, want)
					}
					if r.status != http.StatusNotFound {
						d.Fatalf("%s: %d %s", kind, r.status, r.body)
					}
					times[kind] = append(times[kind], r.took)
					guesses++
				}
			}
		}
		return guesses
	}
	walk(5) // warm up connections and memory
	clear(times)

	// Measure what the stores are asked for anyway, without guesses.
	const calm = time.Second
	database, commands := d.lookups(s, books.db)
	<-time.After(calm)
	idleDatabase, idleRedis := d.lookups(s, books.db)
	idleDatabase, idleRedis = idleDatabase-database, idleRedis-commands

	database, commands = d.lookups(s, books.db)
	start := time.Now()
	guesses := walk(size(100, 2_000))
	seconds := time.Since(start).Seconds()
	nowDatabase, nowRedis := d.lookups(s, books.db)
	asked := nowDatabase - database - int64(float64(idleDatabase)*seconds)
	askedRedis := nowRedis - commands - int64(float64(idleRedis)*seconds)
	if budget := int64(guesses / 5); asked > budget || askedRedis > budget {
		d.Errorf("%d guesses of orders have cost %d reads of the database and %d commands to Redis", guesses, asked, askedRedis)
	}
	typical := map[string]time.Duration{}
	for kind, list := range times {
		typical[kind] = percentile(list, 50)
	}
	fastest, slowest := slices.Min(slices.Collect(maps.Values(typical))), slices.Max(slices.Collect(maps.Values(typical)))
	if slowest > 2*fastest+100*time.Microsecond {
		d.Errorf("half of the answers came within %v", typical)
	}

	// A guess of a sale costs no look-up of its own either: concurrent guesses share the look-up for new sales.
	database, _ = d.lookups(s, books.db)
	start = time.Now()
	var walkers sync.WaitGroup
	sales := size(1_000, 20_000)
	guess := make(chan string, sales)
	for range sales {
		guess <- model.NewSaleID()
	}
	close(guess)
	for range 50 {
		walkers.Go(func() {
			for id := range guess {
				r, err := ask(d.Context(), client, http.MethodGet, a.URL+"/api/v1/sales/"+id, http.NoBody)
				if err != nil || r.status != http.StatusNotFound {
					d.Errorf("sale %s: %d %s %v", id, r.status, r.body, err)
				}
			}
		})
	}
	walkers.Wait()
	seconds = time.Since(start).Seconds()
	nowDatabase, _ = d.lookups(s, books.db)
	if asked := nowDatabase - database - int64(float64(idleDatabase)*seconds); asked > int64(sales/5) {
		d.Errorf("%d guesses of sales have cost %d reads of the database", sales, asked)
	}
	d.result.Happened = fmt.Sprintf("%d guesses of orders, half of each kind answered within %s to %s, cost %d reads more than none; %d guesses of sales",
		guesses, fastest.Round(time.Microsecond), slowest.Round(time.Microsecond), max(asked, 0), sales)
	d.recovered(s, sale, quota, []shop.Attempt{mine, theirs}, a.URL)
}

// base32Digits returns n as four base32 digits.
func base32Digits(n int) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	return string([]byte{digits[n>>15&31], digits[n>>10&31], digits[n>>5&31], digits[n&31]})
}
