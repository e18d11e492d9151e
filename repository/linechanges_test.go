package repository

import (
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// Entries are voided before the seal and never after it, each once and only while it waits. The first entry's time stays.
func TestVoidEntries(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.line(t, 2, model.ModeLine)
		none, verdict, err := d.VoidEntries(t.Context(), d.newSale(t, 1).ID, model.VoidRule{To: 1}, "admin")
		check.Same(t, "without a line", []any{none, verdict, err}, []any{int64(0), model.NoLine, nil})
		check.Same(t, "first entry", d.offer(t, sale.ID).Line.FirstAt, time.Time{})
		d.enters(t, sale.ID, "ann", "bob")
		first := d.offer(t, sale.ID).Line.FirstAt
		d.exec(t, "UPDATE sale_lines SET first_at_ms = first_at_ms - 5000 WHERE sale_id = ?", sale.ID)
		d.enters(t, sale.ID, "cat", "dan", "eve")
		check.Same(t, "first entry", d.offer(t, sale.ID).Line.FirstAt, first.Add(-5*time.Second))
		verdict, err = d.Leave(t.Context(), sale.ID, "bob")
		accepted(t, verdict, err)
		for _, step := range []struct {
			rule model.VoidRule
			want int64
		}{
			{model.VoidRule{Users: []string{"ann", "nobody"}}, 1},
			{model.VoidRule{From: 0, To: 2}, 1}, // ann is void already, and bob has left
			{model.VoidRule{From: 5, To: 9}, 0},
		} {
			voided, verdict, err := d.VoidEntries(t.Context(), sale.ID, step.rule, "admin")
			check.Same(t, "voided", []any{voided, verdict, err}, []any{step.want, model.Accepted, nil})
		}
		states := map[string]model.EntryState{}
		for _, user := range []string{"ann", "bob", "cat", "dan"} {
			states[user] = d.entry(t, sale.ID, user).State
		}
		check.Same(t, "states", states, map[string]model.EntryState{
			"ann": model.EntryVoided, "bob": model.EntryLeft, "cat": model.EntryVoided, "dan": model.EntryWaiting,
		})
		d.starts(t, sale)
		d.sealed(t, sale.ID)
		late, verdict, err := d.VoidEntries(t.Context(), sale.ID, model.VoidRule{To: 9}, "admin")
		check.Same(t, "after the seal", []any{late, verdict, err}, []any{int64(0), model.EntriesClosed, nil})
		looked, left := d.calls(t, sale.ID, 0, 1, 2, 3, 4)
		check.Same(t, "only those who wait are called", []any{looked, left, d.stock(t, sale.ID).Called}, []any{5, false, int64(2)})
	})
}

// Running calls are lengthened, and later ones last as long as the sale says by then. Calls that became orders and calls that
// did not are counted.
func TestExtendCalls(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.line(t, 2, model.ModeLine)
		d.starts(t, sale)
		d.enters(t, sale.ID, "ann", "bob", "cat")
		d.sealed(t, sale.ID)
		d.calls(t, sale.ID, 0, 1)
		before := d.entry(t, sale.ID, "ann").Until
		calls, verdict, err := d.ExtendCalls(t.Context(), sale.ID, time.Hour, "admin")
		check.Same(t, "extended", []any{calls, verdict, err}, []any{int64(2), model.Accepted, nil})
		check.Same(t, "until", d.entry(t, sale.ID, "ann").Until, before.Add(time.Hour))
		d.change(t, sale.ID, 0, func(s *model.Sale) { s.CallSeconds = 9000 })
		_, verdict = d.tryChange(t, sale.ID, 0, func(s *model.Sale) { s.EntriesAt = s.StartsAt.Add(-time.Hour) })
		check.Same(t, "the opening after the seal", verdict, model.EntriesClosed)
		check.Same(t, "ann buys", d.buys(t, sale.ID, "ann"), model.Accepted)
		d.exec(t, "UPDATE calls SET until_ms = 1 WHERE sale_id = ?", sale.ID)
		check.NoError(t, second(d.EndCalls(t.Context(), sale.ID, false, 10)))
		stock := d.stock(t, sale.ID)
		check.Same(t, "counted", []int64{stock.SpentCalls, stock.LapsedCalls}, []int64{1, 1})
		d.calls(t, sale.ID, 2)
		if left := time.Until(d.entry(t, sale.ID, "cat").Until); left < 2*time.Hour {
			t.Errorf("the next call ends in %s", left)
		}
	})
}

// A waiting list can be turned on and off until somebody has entered or the sale is sold out.
func TestWaitingListOfARush(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1)
		turn := func(on bool) func(*model.Sale) {
			return func(s *model.Sale) { s.WaitingList, s.CallSeconds = on, 60 }
		}
		for _, on := range []bool{true, false, true} {
			d.change(t, sale.ID, 0, turn(on))
			check.Same(t, "on", d.offer(t, sale.ID).Stock.Lined == model.LinedAtSoldOut, on)
		}
		order := d.buy(t, sale.ID, "ann", 1)
		d.change(t, sale.ID, 0, func(s *model.Sale) { s.Title = "Another" })
		check.Same(t, "another title does not begin the list", d.offer(t, sale.ID).Stock.Lined, model.LinedAtSoldOut)
		d.enters(t, sale.ID, "bob")
		_, verdict := d.tryChange(t, sale.ID, 0, turn(false))
		check.Same(t, "turned off with an entry", verdict, model.EntriesClosed)
		_, verdict, err := d.Cancel(t.Context(), "ann", order.ID)
		accepted(t, verdict, err)
		check.Same(t, "stock", d.parts(t, sale.ID), []int64{0, 1, 0, 0})
	})
}

// Those who waited in a line have heard at its end that they lost, so nothing may be sold after it.
func TestMayChange(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	sale := func(lined model.Lined, status model.SaleStatus, ends time.Duration) (o model.Offer) {
		o.Status, o.StartsAt, o.EndsAt = status, now.Add(-time.Hour), now.Add(ends)
		o.Stock.Quota, o.Stock.Available, o.Stock.Lined = 5, 5, lined
		return o
	}
	longer := func(o *model.Offer) { o.EndsAt = now.Add(time.Hour) }
	more := func(o *model.Offer) { o.Stock.Quota++ }
	texts := func(o *model.Offer) { o.Title = "new" }
	type test struct {
		before model.Offer
		change func(*model.Offer)
		want   model.Verdict
	}
	check.Each(t, map[string]test{
		"a line that is over, longer":        {sale(model.InLine, model.SaleLive, -time.Minute), longer, model.Ended},
		"a line that is over, more units":    {sale(model.InLine, model.SaleLive, -time.Minute), more, model.Ended},
		"a line that is over, another title": {sale(model.InLine, model.SaleLive, -time.Minute), texts, model.Accepted},
		"a line that goes on, longer":        {sale(model.InLine, model.SaleLive, time.Minute), longer, model.Accepted},
		"a line that goes on, more units":    {sale(model.InLine, model.SaleLive, time.Minute), more, model.Accepted},
		"a rush that is over, longer":        {sale(model.Unlined, model.SaleLive, -time.Minute), longer, model.Accepted},
		"a rush that is over, more units":    {sale(model.Unlined, model.SaleLive, -time.Minute), more, model.Accepted},
		"a rush that was closed, longer":     {sale(model.Unlined, model.SaleClosed, time.Minute), longer, model.Accepted},
		"a rush that was closed, more units": {sale(model.Unlined, model.SaleClosed, time.Minute), more, model.Ended},
	}, func(t *testing.T, tc test) {
		after := tc.before
		tc.change(&after)
		check.Same(t, "the verdict", mayChange(tc.before, after, now), tc.want)
	})
}
