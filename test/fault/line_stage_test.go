package fault

import (
	"fmt"
	"net/http"
	"time"

	"flashsale/test/kit/shop"
)

// queue makes a sale of a mode that has not started, which these instances sell, and watches its books until stop.
func (d *drill) queue(quota int, changes shop.Document, instances ...*shop.Instance) {
	d.Helper()
	for _, i := range instances {
		d.urls = append(d.urls, i.URL)
	}
	sale := shop.Document{"quota": quota, "mode": "line", "starts_at": time.Now().Add(30 * time.Minute).UTC().Format(time.RFC3339)}
	for name, value := range changes {
		sale[name] = value
	}
	d.quota, d.sale = quota, d.SaleWith(d.urls[0], sale)
	d.watched = d.watchLine(d.sale)
}

// starts lets the sale start now. Its calls last for so many seconds, which may be fewer than an operator can choose.
func (d *drill) starts(callSeconds int) {
	d.Helper()
	d.callsLast(callSeconds)
	d.execute(d.books.db, fmt.Sprintf("UPDATE sales SET starts_at_ms = %d, revision = revision + 1 WHERE '%s' IN (id, campaign_id)",
		time.Now().Add(-time.Second).UnixMilli(), d.sale))
	kind := "sales"
	if d.variants != nil {
		kind = "campaigns"
	}
	for _, url := range d.urls {
		d.until(recoveryTime, "the instance knows of the start", func() (bool, error) {
			_, doc, _ := d.Call(http.MethodGet, url+"/api/v1/"+kind+"/"+d.sale, "", nil) // none, of an instance that is to die
			return text(doc, "state") != "upcoming", nil
		})
	}
}

func (d *drill) change(url string, changes shop.Document) {
	d.Helper()
	kind := "sales"
	if d.variants != nil {
		kind = "campaigns"
	}
	d.Must(http.StatusOK, http.MethodPatch, url+"/api/v1/admin/"+kind+"/"+d.sale, d.Operator(url), changes)
}

// callsLast makes calls that begin from now on last for so many seconds.
func (d *drill) callsLast(seconds int) {
	d.Helper()
	d.execute(d.books.db, fmt.Sprintf("UPDATE sale_lines SET call_seconds = %d WHERE sale_id = '%s'", seconds, d.sale))
}

// staleLease ends the caller's lease, whoever has it.
func (d *drill) staleLease() {
	_, _ = d.books.db.ExecContext(d.Context(), "UPDATE leases SET until_ms = 0 WHERE name = 'caller'") // the database may be down
}

func (d *drill) entriesURL(url string) string { return url + "/api/v1/sales/" + d.sale + "/entries" }

// entersBy makes an entry of a user, and returns the answer with the ticket.
func (d *drill) entersBy(user, url string) (status int, ticket string) {
	status, doc, err := d.Call(http.MethodPost, d.entriesURL(url), d.Token(user), shop.Document{"quantity": d.limit})
	if err != nil {
		return 0, ""
	}
	return status, text(doc, "ticket")
}

// enter makes entries of so many users at these instances in turn, each of which must succeed.
func (d *drill) enter(prefix string, users int, urls ...string) {
	d.Helper()
	inParallel(crowd, users, func(i int) {
		if status, _ := d.entersBy(fmt.Sprint(prefix, "-", i), urls[i%len(urls)]); status != http.StatusCreated {
			d.wrong(status)("entry %d of %s: %d", i, prefix, status)
		}
	})
}

// leave ends the entry of a user, and returns the status of the answer.
func (d *drill) leave(user, url string) int {
	status, _, _ := d.Call(http.MethodDelete, d.entriesURL(url)+"/mine", d.Token(user), nil)
	return status
}

// lineIs waits until the books of the line are as they should be, and returns them.
func (d *drill) lineIs(what string, is func(b *lineBooks) bool) (b lineBooks) {
	d.Helper()
	d.until(recoveryTime, what, func() (ok bool, err error) {
		b, err = d.books.line(d.Context(), d.sale)
		return err == nil && is(&b), err
	})
	return b
}

// called reports whether every unit is behind a call or in an order, or nobody waits any more.
func called(b *lineBooks) bool {
	return b.phase == "calling" && (b.reserved == 0 || b.serving == b.entries)
}

// callees returns the users who are called.
func (b *lineBooks) callees() (users []string) {
	for _, t := range b.turns {
		users = append(users, t.user)
	}
	return users
}

// buyers lets users buy at these instances in turn, all at once, and returns their answers.
func (d *drill) buyers(users []string, urls ...string) []shop.Attempt {
	list := make([]shop.Attempt, len(users))
	inParallel(crowd, len(users), func(i int) { list[i] = d.buy(users[i], "key-"+users[i], urls[i%len(urls)]) })
	d.attempts = append(d.attempts, list...)
	return list
}

// served ends a row of a line: whoever is called buys, at these instances in turn, until every unit is sold or nobody waits.
// Then it compares all answers with the orders, and the seal with the entries.
func (d *drill) served(format string, args ...any) {
	d.Helper()
	start := time.Now()
	d.lineIs("the rest is sold to those who wait", func(b *lineBooks) bool {
		d.buyers(b.callees(), d.urls...)
		return b.held+b.paid == b.quota || b.waiting() == 0
	})
	d.result.Recovery = time.Since(start)
	all := d.stop()
	b, err := d.books.line(d.Context(), d.sale)
	d.ok(err)
	if err := b.sealRight(); err != nil {
		d.Error(err)
	}
	if b.waiting() > 0 && b.held+b.paid < b.quota {
		d.Errorf("%d of %d units are sold, and %d wait", b.held+b.paid, b.quota, b.waiting())
	}
	orders, err := d.books.orders(d.Context(), d.sale)
	d.ok(err)
	d.record.add(toBuy, d.attempts...)
	f := judge(d.attempts, orders, int(b.quota), d.limit, func(a shop.Attempt) string { return d.orderStatus(d.urls[0], a) })
	d.result.Confirmed, d.result.Lost, d.result.Doubled = f.confirmed, len(f.lost), len(f.doubled)
	d.result.Over += len(f.over)
	if !f.sound() {
		d.Errorf("%s", f)
	}
	if len(f.open) > 0 {
		d.Slowf("%s", f)
	}
	d.Books(d.sale)
	d.result.Happened = fmt.Sprintf(format, args...) + "; " + all
}
