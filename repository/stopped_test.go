package repository

import (
	"fmt"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// ago lets time pass for a line: what was a moment ago is as long ago as that.
func (d *testDB) ago(t *testing.T, lineID string, by time.Duration) {
	t.Helper()
	d.exec(t, "UPDATE sale_lines SET seen_at_ms = seen_at_ms - ? WHERE sale_id = ?", by.Milliseconds(), lineID)
	d.exec(t, "UPDATE calls SET until_ms = until_ms - ? WHERE sale_id = ?", by.Milliseconds(), lineID)
}

// oneCalled are sales in line with ann called, and bob behind her, by what they are.
func (d *testDB) oneCalled(t *testing.T) map[string]model.Sale {
	t.Helper()
	line := d.line(t, 1, model.ModeLine)
	d.starts(t, line)
	rush := d.newSale(t, 1, func(s *model.Sale) { s.WaitingList, s.CallSeconds = true, 60 })
	first := d.buy(t, rush.ID, "first", 1)
	_, ids := d.campaignIn(t, model.ModeLine, 1, 1, 1)
	sales := map[string]model.Sale{"a line": line, "a waiting list": rush, "a campaign's line": d.offer(t, ids[0]).Sale}
	for _, sale := range sales {
		d.enters(t, sale.LineID(), "ann", "bob")
		if sale.Mode == model.ModeLine {
			d.sealed(t, sale.LineID())
		}
	}
	d.cancel(t, first)
	for name, sale := range sales {
		looked, _ := d.calls(t, sale.LineID(), 0, 1)
		check.Same(t, name+" calls ann", looked, 1)
	}
	return sales
}

// changeAll changes a sale, and all of its campaign if it has one.
func (d *testDB) changeAll(t *testing.T, sale model.Sale, edit func(*model.Sale)) {
	t.Helper()
	if sale.Campaign.ID == "" {
		d.change(t, sale.ID, 0, edit)
		return
	}
	verdict, err := d.ChangeCampaign(t.Context(), model.CampaignChange{
		CampaignID: sale.Campaign.ID, Actor: "op", Action: "patch",
		Edit:     func(*model.Campaign) model.Verdict { return model.Accepted },
		EditSale: func(s *model.Sale) model.Verdict { edit(s); return model.Accepted },
	})
	accepted(t, verdict, err)
}

// While a sale does not sell, because it is paused or its start was postponed, nobody is called and no call ends. When it goes
// on, calls have the time that they had, however short the stop was.
func TestHole64_CallsOutliveAStop(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for by, stop := range map[string]struct {
			on, off func(*model.Sale)
			lasts   time.Duration
		}{
			"a pause":         {status(model.SalePaused), status(model.SaleLive), 2 * time.Hour},
			"a short pause":   {status(model.SalePaused), status(model.SaleLive), outageTime - time.Second},
			"another start":   {startIn(30 * time.Minute), startIn(-time.Hour), 2 * time.Hour},
			"a start in 10 s": {startIn(10 * time.Second), startIn(-time.Hour), outageTime - time.Second},
		} {
			for name, sale := range d.oneCalled(t) {
				what := fmt.Sprintf("%s, %s: ", name, by)
				line := sale.LineID()
				d.exec(t, "UPDATE calls SET until_ms = until_ms - 59000 WHERE sale_id = ?", line) // a second is left, less than each stop
				left := d.timeLeft(t, line)
				d.changeAll(t, sale, stop.on)
				d.ago(t, line, stop.lasts)
				offer, err := d.TendLine(t.Context(), line)
				check.Same(t, what+"stopped", []any{offer.Line.Stopped, err}, []any{true, nil})
				check.NoError(t, second(d.EndCalls(t.Context(), line, false, 10)))
				d.exec(t, "UPDATE stock SET quota = quota + 1, reserved = reserved + 1 WHERE sale_id = ?", line)
				looked, _, err := d.Call(t.Context(), line, offer.Line.Serving, []int64{1})
				check.Same(t, what+"calls", []any{looked, err}, []any{0, nil})
				d.exec(t, "UPDATE stock SET quota = quota - 1, reserved = reserved - 1 WHERE sale_id = ?", line)
				check.Same(t, what+"ann is called", d.entry(t, line, "ann").State, model.EntryCalled)
				if d.buys(t, sale.ID, "ann") == model.Accepted {
					t.Error(what + "ann buys")
				}
				d.changeAll(t, sale, stop.off)
				offer, err = d.TendLine(t.Context(), line)
				check.Same(t, what+"goes on", []any{offer.Line.Stopped, err}, []any{false, nil})
				if now := d.timeLeft(t, line); now < left {
					t.Errorf("%sthe call has %d ms left since the last look, before it %d", what, now, left)
				}
				d.exec(t, "UPDATE calls SET until_ms = until_ms + 3600000 WHERE sale_id = ?", line) // this machine may stand still
				check.NoError(t, second(d.EndCalls(t.Context(), line, false, 10)))
				check.Same(t, what+"ann buys afterwards", d.buys(t, sale.ID, "ann"), model.Accepted)
			}
		}
	})
}

// timeLeft returns for how many milliseconds the call of a line still ran when a caller last looked. No clock of this machine
// plays a part.
func (d *testDB) timeLeft(t *testing.T, line string) int64 {
	t.Helper()
	return d.count(t, "SELECT until_ms - seen_at_ms FROM calls JOIN sale_lines ON sale_lines.sale_id = calls.sale_id WHERE calls.sale_id = ?", line)
}

// startIn moves the start of a sale to a time from now.
func startIn(by time.Duration) func(*model.Sale) {
	return func(s *model.Sale) { s.StartsAt = time.Now().Add(by) }
}

// A draw that is stopped between its seal and its end makes no orders. It goes on where it was.
func TestHole64_DrawStops(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.line(t, 1, model.ModeDraw)
		d.enters(t, sale.ID, "ann")
		d.starts(t, sale)
		d.sealed(t, sale.ID)
		id := func(user string) string { return attempt(sale.ID, user, "draw", 1).ID }
		d.change(t, sale.ID, 0, status(model.SalePaused))
		looked, _, err := d.Draw(t.Context(), sale.ID, 0, []int64{0}, id)
		check.Same(t, "while it is paused", []any{looked, err}, []any{0, nil})
		d.change(t, sale.ID, 0, status(model.SaleLive))
		check.NoError(t, second(d.TendLine(t.Context(), sale.ID)))
		looked, over, err := d.Draw(t.Context(), sale.ID, 0, []int64{0}, id)
		check.Same(t, "when it goes on", []any{looked, over, err}, []any{1, true, nil})
	})
}

// A sale that is paused over its start is not sealed before it goes on.
func TestHole64_PausedOverTheStart(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.line(t, 1, model.ModeLine)
		d.change(t, sale.ID, 0, status(model.SalePaused))
		d.starts(t, sale)
		offer, err := d.TendLine(t.Context(), sale.ID)
		check.Same(t, "paused", []any{offer.Line.Phase, err}, []any{model.PhaseEntering, nil})
		d.change(t, sale.ID, 0, status(model.SaleLive))
		offer, err = d.TendLine(t.Context(), sale.ID)
		check.Same(t, "live", []any{offer.Line.Phase, err}, []any{model.PhaseSealed, nil})
	})
}

// An order of a buyer who is called is not made once a pause is committed, even if the sale was read before.
func TestHole64_PauseBeforeACalledBuyerBuys(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		if d.sqlite {
			return // one writer: a pause can't come between two statements of a transaction
		}
		for name, sale := range d.oneCalled(t) {
			d.beforeCallsAreLocked(func() { d.changeAll(t, sale, status(model.SalePaused)) })
			check.Same(t, name, d.buys(t, sale.ID, "ann"), model.Paused)
		}
	})
}

// A call whose row is locked when the sale ends is ended later.
func TestCallLockedAtTheEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, sale := range d.oneCalled(t) {
			d.changeAll(t, sale, status(model.SaleClosed))
			check.NoError(t, second(d.TendLine(t.Context(), sale.LineID())))
			check.Same(t, name+", the entry", d.entry(t, sale.LineID(), "ann").State, model.EntryLost)
			if !d.sqlite {
				locked := d.write.Begin()
				check.NoError(t, locked.Exec("UPDATE calls SET units = units WHERE sale_id = ?", sale.LineID()).Error)
				check.NoError(t, second(d.EndCalls(t.Context(), sale.LineID(), true, 10)))
				check.Same(t, name+", called while the row is locked", d.stock(t, sale.LineID()).Called, 1)
				check.NoError(t, locked.Rollback().Error)
			}
			check.NoError(t, second(d.EndCalls(t.Context(), sale.LineID(), true, 10)))
			check.Same(t, name+", called", d.stock(t, sale.LineID()).Called, 0)
		}
	})
}

// An instance that refuses from memory knows nothing of a line. So units that come back wait for its lease also if they go to the
// line, whether that has begun or not; and a sale in line gets no lease.
func TestHole61_ReturnsToALineWaitForLeases(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, begun := range map[string]bool{"somebody waits": true, "nobody waits": false} {
			sale := d.newSale(t, 1, func(s *model.Sale) { s.WaitingList, s.CallSeconds = true, 60 })
			order := d.buy(t, sale.ID, "ann", 1)
			_, leased := d.lease(t, sale.ID)
			check.Same(t, name+": a lease", leased, true)
			if begun {
				d.enters(t, sale.ID, "bob")
			}
			own := d.another(t) // whose hook may use d
			own.between(func() {
				d.exec(t, "UPDATE stock SET refusing_until_ms = "+d.nowMillis()+" + ? WHERE sale_id = ?", returnNotice.Milliseconds(), sale.ID)
			})
			check.NoError(t, second(own.Expire(t.Context(), sale.ID, []string{order.ID})))
			check.Same(t, name+": while the lease holds", d.parts(t, sale.ID), []int64{0, 0, 0, 1})
			d.exec(t, "UPDATE stock SET refusing_until_ms = 0 WHERE sale_id = ?", sale.ID)
			check.NoError(t, second(d.Expire(t.Context(), sale.ID, []string{order.ID})))
			check.Same(t, name+": afterwards", d.parts(t, sale.ID), []int64{0, 1, 0, 0})
			d.exec(t, "UPDATE stock SET returning_at_ms = 0, reserved = 0, held = 1 WHERE sale_id = ?", sale.ID)
			_, leased = d.lease(t, sale.ID)
			check.Same(t, name+": a lease in line", leased, false)
			d.exec(t, "UPDATE stock SET reserved = 1, held = 0 WHERE sale_id = ?", sale.ID)
		}
	})
}

// A call and a draw give nobody more than the limit, also if it was lowered after the entry. What a draw gives is fixed at its
// seal, and its proof says the same.
func TestHole65_LoweredLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, mode := range []model.Mode{model.ModeLine, model.ModeDraw} {
			sale := d.line(t, 4, mode, limit(5))
			_, verdict, err := d.Enter(t.Context(), sale.ID, []model.LineEntry{{UserID: "ann", Quantity: 5}, {UserID: "bob", Quantity: 1}})
			accepted(t, verdict, err)
			d.change(t, sale.ID, 0, limit(2))
			d.starts(t, sale)
			d.sealed(t, sale.ID)
			sealing, err := d.Sealing(t.Context(), sale.ID)
			check.NoError(t, err)
			if mode == model.ModeLine {
				d.calls(t, sale.ID, 0, 1)
				check.Same(t, "units of calls", []int{d.entry(t, sale.ID, "ann").Units, d.entry(t, sale.ID, "bob").Units, sealing.DrawLimit}, []int{2, 1, 0})
				continue
			}
			_, verdict = d.tryChange(t, sale.ID, 0, limit(1))
			check.Same(t, "a lower limit after the seal", verdict, model.EntriesClosed)
			d.change(t, sale.ID, 0, limit(3))
			_, _, err = d.Draw(t.Context(), sale.ID, 0, []int64{0, 1}, func(user string) string { return attempt(sale.ID, user, "draw", 1).ID })
			check.NoError(t, err)
			check.Same(t, "units that were drawn", []int{d.live(t, sale.ID, "ann"), d.live(t, sale.ID, "bob"), sealing.DrawLimit}, []int{2, 1, 2})
			d.change(t, sale.ID, 0, limit(1))
			d.change(t, sale.ID, 0, limit(2)) // as the check after this test expects
		}
	})
}

// Late money counts on a sale in line like on any other, if there are units for which nobody waits. Otherwise it goes back.
func TestHole65_LateMoneyInLine(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for when, tc := range map[string]struct {
			meanwhile  func(sale model.Sale)
			reinstated bool
		}{
			"nobody waits": {func(sale model.Sale) {
				check.Same(t, "bob leaves", second(d.Leave(t.Context(), sale.LineID(), "bob")), nil)
				d.calls(t, sale.LineID(), 1) // looks at bob's entry
			}, true},
			"somebody waits":     {func(model.Sale) {}, false},
			"somebody is called": {func(sale model.Sale) { d.calls(t, sale.LineID(), 1) }, false},
			"the line is over": {func(sale model.Sale) {
				d.changeAll(t, sale, status(model.SaleClosed))
				check.NoError(t, second(d.TendLine(t.Context(), sale.LineID())))
			}, true},
		} {
			for name, sale := range d.oneCalled(t) {
				check.Same(t, "ann buys", d.buys(t, sale.ID, "ann"), model.Accepted)
				order := d.order(t, attempt(sale.ID, "ann", "k", 1).ID)
				p := d.startPayment(t, order)
				d.expire(t, order)
				tc.meanwhile(sale)
				_, reinstated := d.pay(t, p, "late "+sale.ID)
				check.Same(t, name+", "+when+": reinstated", reinstated, tc.reinstated)
			}
		}
	})
}
