package fault

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"flashsale/test/kit/shop"
)

// campaignRows are attacks on the limit and the line of a campaign.
var campaignRows = []row{
	{81, "users buy ten sizes of a campaign at once, at two instances, while Redis dies and returns", "each user gets the common limit, no more and no less", tenSizes},
	{82, "users wait in line for ten sizes of a campaign, and choose at two instances at once, while Redis dies and an instance is killed", "whoever is called has one order, within both limits, of a size that has units", sizesInLine},
}

const (
	sizes       = 10
	commonLimit = 3 // units of a user over all sizes
)

// newCampaign makes a campaign of ten sizes with a quota each, of which a user may have one unit to three, and returns its id and
// the sales.
func (d *drill) newCampaign(quota int, changes shop.Document) (id string, sales []string) {
	d.Helper()
	variants := make([]shop.Document, sizes)
	for i := range variants {
		variants[i] = shop.Document{"variant": fmt.Sprint(36 + i), "quota": quota, "limit_per_user": 1 + i%commonLimit}
	}
	url, now := d.urls[0], time.Now().UTC()
	body := shop.Document{
		"title": "campaign", "limit_per_user": commonLimit, "sales": variants,
		"starts_at": now.Add(-time.Minute).Format(time.RFC3339), "ends_at": now.Add(time.Hour).Format(time.RFC3339),
	}
	maps.Copy(body, changes)
	doc := d.Must(http.StatusCreated, http.MethodPost, url+"/api/v1/admin/campaigns", d.Operator(url), body)
	for _, sale := range doc["sales"].([]any) {
		sales = append(sales, text(sale.(shop.Document), "id"))
	}
	return text(doc, "id"), sales
}

// tenSizes lets each user ask for all sizes at the same time, half of them at each instance. Redis dies and returns while
// they ask. At the end those whom a fault has kept from buying ask again.
func tenSizes(d *drill) {
	d.stores()
	a, b := d.Start("--ack-wait", "300ms"), d.Start("--ack-wait", "300ms")
	d.urls = []string{a.URL, b.URL}
	users := size(20, 400)
	_, sales := d.newCampaign(users+10, nil)
	var ends []func() string
	for _, sale := range sales {
		ends = append(ends, d.watch(sale))
	}
	overCommon := func() (list []string) {
		rows, err := d.books.db.QueryContext(d.Context(), `SELECT CONCAT(user_id, ' has ', SUM(quantity), ' of ', ?) FROM orders
			WHERE status IN ('pending', 'paid') AND user_id LIKE 'u-%' GROUP BY user_id HAVING SUM(quantity) > ?`, commonLimit, commonLimit)
		d.ok(err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var one string
			d.ok(rows.Scan(&one))
			list = append(list, one)
		}
		d.ok(rows.Err())
		return list
	}

	all := make([][]shop.Attempt, sizes) // by size
	for i := range all {
		all[i] = make([]shop.Attempt, users)
	}
	third := int64(sizes * users / 3)
	var answered atomic.Int64
	kill, restart, restarted := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(restarted)
		<-kill
		d.Redis.Kill()
		<-restart
		d.Redis.Restart()
	}()
	inParallel(4*sizes, sizes*users, func(i int) {
		user, at := i/sizes, i%sizes
		one := &all[at][user]
		*one = shop.Attempt{User: fmt.Sprint("u-", user), Key: fmt.Sprint("key-", user, "-", at), URL: d.urls[at%2]}
		d.Buy(one, sales[at])
		switch answered.Add(1) {
		case third:
			close(kill)
		case 2 * third:
			close(restart)
		}
	})
	<-restarted
	told := tally(slices.Concat(all...))
	d.told(slices.Concat(all...), "201", "202", "409 limit_reached", "503 unavailable")
	if over := overCommon(); len(over) > 0 {
		d.Errorf("over the common limit: %s", some(over))
		d.result.Over += len(over)
	}

	// Whoever was told to come again does so under the same key, and ends with the common limit.
	inParallel(4, users, func(user int) {
		for at := range sizes {
			one := &all[at][user]
			for end := time.Now().Add(recoveryTime); one.Code == "unavailable" && time.Now().Before(end); {
				*one = shop.Attempt{User: one.User, Key: one.Key, URL: one.URL}
				d.Buy(one, sales[at])
			}
		}
	})
	d.result.Happened = fmt.Sprintf("%d users, each at %d sizes at once: %s", users, sizes, told)
	for i, sale := range sales {
		if wrong := ends[i](); wrong != "" {
			d.Errorf("while the fault lasted: %s", wrong)
		}
		d.recovered(sale, users+10, all[i])
	}
	short, err := d.count(`SELECT COUNT(*) FROM (SELECT user_id FROM orders WHERE status IN ('pending', 'paid') AND user_id LIKE 'u-%'
		GROUP BY user_id HAVING SUM(quantity) = ?) AS served`, commonLimit)
	d.ok(err)
	if over := overCommon(); len(over) > 0 {
		d.Errorf("over the common limit: %s", some(over))
	}
	if short != users {
		failed := d.Errorf
		if undecided(slices.Concat(all...)) {
			failed = d.Slowf
		}
		failed("%d of %d users have the common limit", short, users)
	}
}

// choose lets a user ask for one size after the other, in random order, until an order is made or the user has no call. A user who
// gets no answer asks again at the last instance.
func (d *drill) choose(user, key, url string) (a shop.Attempt) {
	for _, i := range rand.Perm(sizes * commonLimit) {
		a = shop.Attempt{User: user, Key: key, URL: url, Units: 1 + i%commonLimit}
		id := d.variants[i/commonLimit]
		if d.Buy(&a, id); a.Status == 0 {
			a.URL = d.urls[len(d.urls)-1]
			d.Buy(&a, id)
		}
		if a.Code != "sold_out" && a.Code != "limit_reached" && a.Code != "bad_request" { // more than the sale's own limit
			break
		}
	}
	return a
}

// sizesInLine lets all who entered try at both instances at once, and every fourth buyer cancels. Meanwhile Redis dies, and then
// an instance. When both are back, whoever is called buys, until all is sold.
func sizesInLine(d *drill) {
	d.stores()
	doomed, survivor := d.Start(), d.Start()
	d.urls = []string{doomed.URL, survivor.URL}
	each := size(12, 40)
	d.quota, d.limit = sizes*each, commonLimit
	d.sale, d.variants = d.newCampaign(each, shop.Document{"mode": "line", "starts_at": time.Now().Add(30 * time.Minute).UTC().Format(time.RFC3339)})
	d.watched = d.watchLine(d.sale)
	d.enter("u", d.quota, d.urls...)
	d.starts(60)
	first := d.lineIs("all units are behind calls", called)
	d.attempts = make([]shop.Attempt, 2*d.quota)
	third := int64(len(d.attempts) / 3)
	var came atomic.Int64
	inParallel(crowd, len(d.attempts), func(i int) {
		switch came.Add(1) {
		case third:
			d.Redis.Kill()
		case 2 * third:
			doomed.Kill()
		}
		at := d.buy(fmt.Sprint("u-", i/2), fmt.Sprint("key-", i), d.urls[i%2])
		if d.attempts[i] = at; !at.Confirmed() || i/2%4 > 0 {
			return
		}
		if answer := d.cancel(at, survivor.URL); answer.Status != http.StatusOK {
			d.wrong(answer.Status)("cancel: %d %s", answer.Status, answer.Code)
		}
	})
	d.Redis.Restart()
	d.urls = []string{d.Start().URL, survivor.URL}
	d.served("%d called at first, every fourth order cancelled", len(first.turns))
	d.told(d.attempts, "201", "409 limit_reached", "409 not_your_turn", "409 sold_out", "400 bad_request")
	over, err := d.count(`SELECT COUNT(*) FROM (SELECT 1 FROM orders JOIN sales ON sales.id = sale_id WHERE orders.status IN ('pending', 'paid')
		GROUP BY sale_id, user_id HAVING SUM(quantity) > MAX(limit_per_user)) AS users`)
	if over > 0 || err != nil {
		d.Errorf("%d users are over the limit of a size: %v", over, err)
		d.result.Over += over
	}
	d.AuditCommand()
}
