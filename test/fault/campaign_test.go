package fault

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"flashsale/test/kit/shop"
)

// campaignRows are attacks on the limit of a campaign.
var campaignRows = []row{
	{81, "users buy ten sizes of a campaign at once, at two instances, while Redis dies and returns", "each user gets the common limit, no more and no less", tenSizes},
}

const (
	sizes       = 10
	commonLimit = 3 // units of a user over all sizes
)

// newCampaign makes a campaign of ten sizes with a quota each, one unit of a size for each user, and returns the sales.
func (d *drill) newCampaign(quota int) (sales []string) {
	d.Helper()
	variants := make([]shop.Document, sizes)
	for i := range variants {
		variants[i] = shop.Document{"variant": fmt.Sprint(36 + i), "quota": quota, "limit_per_user": 1}
	}
	url, now := d.urls[0], time.Now().UTC()
	doc := d.Must(http.StatusCreated, http.MethodPost, url+"/api/v1/admin/campaigns", d.Operator(url), shop.Document{
		"title": "campaign", "limit_per_user": commonLimit, "sales": variants,
		"starts_at": now.Add(-time.Minute).Format(time.RFC3339), "ends_at": now.Add(time.Hour).Format(time.RFC3339),
	})
	for _, sale := range doc["sales"].([]any) {
		sales = append(sales, text(sale.(shop.Document), "id"))
	}
	return sales
}

// tenSizes lets each user ask for all sizes at the same time, half of them at each instance. Redis dies and returns while
// they ask. At the end those whom a fault has kept from buying ask again.
func tenSizes(d *drill) {
	d.stores()
	a, b := d.Start("--ack-wait", "300ms"), d.Start("--ack-wait", "300ms")
	d.urls = []string{a.URL, b.URL}
	users := size(20, 400)
	sales := d.newCampaign(users + 10)
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
	if over := overCommon(); len(over) > 0 || short != users {
		d.Errorf("%d of %d users have the common limit; over it: %s", short, users, some(over))
	}
}
