package repository

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// line creates a sale with a line, which starts in an hour.
func (d *testDB) line(t *testing.T, quota int64, mode model.Mode, edits ...func(*model.Sale)) model.Sale {
	t.Helper()
	return d.newSale(t, quota, append([]func(*model.Sale){func(s *model.Sale) {
		s.Mode, s.CallSeconds = mode, 60
		s.StartsAt, s.EndsAt = s.StartsAt.Add(2*time.Hour), s.EndsAt.Add(2*time.Hour)
	}}, edits...)...)
}

// starts lets a sale start.
func (d *testDB) starts(t *testing.T, sale model.Sale) {
	t.Helper()
	d.exec(t, "UPDATE sales SET starts_at_ms = starts_at_ms - 7200000 WHERE id = ?", sale.ID)
}

// enters makes entries, which want one unit each, and returns the answers.
func (d *testDB) enters(t *testing.T, saleID string, users ...string) []model.LineEntry {
	t.Helper()
	wishes := make([]model.LineEntry, len(users))
	for i, user := range users {
		wishes[i] = model.LineEntry{UserID: user, Quantity: 1}
	}
	entries, verdict, err := d.Enter(t.Context(), saleID, wishes)
	accepted(t, verdict, err)
	return entries
}

func (d *testDB) entry(t *testing.T, saleID, user string) model.LineEntry {
	t.Helper()
	e, ok, err := d.EntryOf(t.Context(), saleID, user)
	if err != nil || !ok {
		t.Fatalf("%s has no entry: %v", user, err)
	}
	return e
}

// calls calls the next entries in the order of their numbers.
func (d *testDB) calls(t *testing.T, saleID string, numbers ...int64) (looked int, left bool) {
	t.Helper()
	offer, err := d.TendLine(t.Context(), saleID)
	check.NoError(t, err)
	looked, left, err = d.Call(t.Context(), saleID, offer.Line.Serving, numbers)
	check.NoError(t, err)
	return looked, left
}

func (d *testDB) buys(t *testing.T, saleID, user string) model.Verdict {
	t.Helper()
	outcomes, err := d.SellCalled(t.Context(), saleID, []model.Attempt{attempt(saleID, user, "k", 1)})
	check.NoError(t, err)
	return outcomes[0].Verdict
}

// parts returns the units that are available, reserved, called and held.
func (d *testDB) parts(t *testing.T, saleID string) []int64 {
	t.Helper()
	s := d.stock(t, saleID)
	return []int64{s.Available, s.Reserved, s.Called, s.Held}
}

// sealed puts a started line's order in force, with the identity as its order.
func (d *testDB) sealed(t *testing.T, saleID string) {
	t.Helper()
	check.NoError(t, second(d.TendLine(t.Context(), saleID)))
	check.NoError(t, d.SetSeed(t.Context(), saleID, "root", "seed"))
}

// Books show calls and orders whose entries don't fit, and entries that are missing.
func TestBooksOfALine(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.line(t, 2, model.ModeLine)
		d.enters(t, sale.ID, "ann", "bob", "cat")
		d.starts(t, sale)
		d.sealed(t, sale.ID)
		d.calls(t, sale.ID, 0, 1)
		check.Same(t, "ann buys", d.buys(t, sale.ID, "ann"), model.Accepted)
		entries := func(change string, user string) {
			d.exec(t, "UPDATE entries SET "+change+" WHERE sale_id = ? AND user_id = ?", sale.ID, user)
		}
		for _, tc := range []struct{ user, plant, repair, want string }{
			{"ann", "state = 'waiting'", "state = 'spent'", "orders of the line without a spent entry: 1, not 0"},
			{"bob", "state = 'left'", "state = 'waiting'", "calls whose entry does not wait: 1, not 0"},
			{"cat", "sale_id = 'ELSEWHERE'", "", "entries against the line's number: 2, not 3"},
		} {
			entries(tc.plant, tc.user)
			books, _, err := d.Books(t.Context(), sale.ID)
			check.NoError(t, err)
			check.Same(t, tc.plant, books.Violations(), []string{tc.want})
			if tc.repair != "" {
				entries(tc.repair, tc.user)
			}
		}
		d.exec(t, "UPDATE entries SET sale_id = ? WHERE sale_id = 'ELSEWHERE'", sale.ID)
	})
}

func second[T any](_ T, err error) error { return err }

// From the entry to the order: only those who are called may buy, once, while the call lasts; units of calls that end go to
// the next.
func TestLine(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.line(t, 2, model.ModeLine)
		got := d.enters(t, sale.ID, "ann", "bob", "ann", "cat")
		check.Same(t, "numbers", []int64{got[0].Number, got[1].Number, got[2].Number, got[3].Number}, []int64{0, 1, 0, 2})
		check.Same(t, "new", []bool{got[0].New, got[1].New, got[2].New, got[3].New}, []bool{true, true, false, true})
		offer, err := d.TendLine(t.Context(), sale.ID)
		check.Same(t, "before the start", []any{offer.Line.Phase, offer.Line.Entries, err}, []any{model.PhaseEntering, int64(3), nil})
		looked, _, err := d.Call(t.Context(), sale.ID, 0, []int64{0})
		check.Same(t, "called before the seal", []any{looked, err}, []any{0, nil})

		d.starts(t, sale)
		late := d.enters(t, sale.ID, "dan")
		check.Same(t, "a late entry", late[0].Number, int64(3))
		offer, err = d.TendLine(t.Context(), sale.ID)
		check.Same(t, "sealed", []any{offer.Line.Phase, offer.Line.Sealed, err}, []any{model.PhaseSealed, int64(3), nil})
		d.sealed(t, sale.ID)
		check.NoError(t, d.SetSeed(t.Context(), sale.ID, "other root", "other seed")) // changes nothing
		offer, _, err = d.Offer(t.Context(), sale.ID)
		check.Same(t, "the order", []any{offer.Line.Phase, offer.Line.Root, offer.Line.Seed, err}, []any{model.PhaseCalling, "root", "seed", nil})

		looked, left := d.calls(t, sale.ID, 0, 1, 2, 3)
		check.Same(t, "two are called", []any{looked, left}, []any{2, false})
		again, _, err := d.Call(t.Context(), sale.ID, 0, []int64{0, 1})
		check.Same(t, "another caller with an old state calls", []any{again, err}, []any{0, nil})
		check.Same(t, "stock", d.parts(t, sale.ID), []int64{0, 0, 2, 0})
		check.Same(t, "ann", d.entry(t, sale.ID, "ann").State, model.EntryCalled)
		check.Same(t, "cat buys", d.buys(t, sale.ID, "cat"), model.NotYourTurn)
		check.Same(t, "a stranger buys", d.buys(t, sale.ID, "eve"), model.NotYourTurn)
		check.Same(t, "ann buys", d.buys(t, sale.ID, "ann"), model.Accepted)
		check.Same(t, "ann asks again", d.buys(t, sale.ID, "ann"), model.Accepted) // the same attempt
		check.Same(t, "stock", d.parts(t, sale.ID), []int64{0, 0, 1, 1})

		d.exec(t, "UPDATE calls SET until_ms = 1 WHERE sale_id = ?", sale.ID)
		more, err := d.EndCalls(t.Context(), sale.ID, false, 10)
		check.Same(t, "calls end", []any{more, err}, []any{false, nil})
		check.Same(t, "bob", d.entry(t, sale.ID, "bob").State, model.EntryLapsed)
		check.Same(t, "bob buys", d.buys(t, sale.ID, "bob"), model.NotYourTurn)
		d.calls(t, sale.ID, 2, 3)
		verdict, err := d.Leave(t.Context(), sale.ID, "cat")
		accepted(t, verdict, err)
		check.Same(t, "stock", d.parts(t, sale.ID), []int64{0, 1, 0, 1})
		d.calls(t, sale.ID, 3)
		check.Same(t, "dan buys", d.buys(t, sale.ID, "dan"), model.Accepted)
		verdict, err = d.Leave(t.Context(), sale.ID, "dan")
		check.Same(t, "dan leaves", []any{verdict, err}, []any{model.NotFound, nil})
	})
}

// With a beacon, the root and the round are published first and once, then the randomness of this round, and only then the
// seed.
func TestLineWithBeacon(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.line(t, 3, model.ModeDraw, func(s *model.Sale) { s.Beacon = true })
		d.enters(t, sale.ID, "ann", "bob")
		round := func(n int64) func(time.Time) int64 {
			return func(now time.Time) int64 {
				if behind := time.Since(now).Abs(); behind > time.Minute {
					t.Errorf("the clock of the round is %s away", behind)
				}
				return n
			}
		}
		check.NoError(t, d.SetRoot(t.Context(), sale.ID, "early", round(6))) // before the seal, so it changes nothing
		d.starts(t, sale)
		check.NoError(t, second(d.TendLine(t.Context(), sale.ID)))
		if d.SetSeed(t.Context(), sale.ID, "root", "seed") == nil {
			t.Error("the seed is taken without randomness")
		}
		check.NoError(t, d.SetRandomness(t.Context(), sale.ID, 7, []byte{1}, [32]byte{2})) // no round is named yet
		check.NoError(t, d.SetRoot(t.Context(), sale.ID, "root", round(7)), d.SetRoot(t.Context(), sale.ID, "other", round(8)))
		line := func() model.Line {
			t.Helper()
			offer, _, err := d.Offer(t.Context(), sale.ID)
			check.NoError(t, err)
			return offer.Line
		}
		first := line()
		check.Same(t, "named", []any{first.Phase, first.Root, first.Round, first.Seed, first.Secret, first.Randomness, first.AwaitsSeed()},
			[]any{model.PhaseSealed, "root", int64(7), "", "", "", true})
		d.exec(t, "UPDATE stock SET quota = quota + 5, reserved = reserved + 5 WHERE sale_id = ?", sale.ID) // come too late for the draw
		if d.SetSeed(t.Context(), sale.ID, "root", "seed") == nil {
			t.Error("the seed is taken without randomness")
		}
		check.NoError(t, d.SetRandomness(t.Context(), sale.ID, 8, []byte{1}, [32]byte{3})) // of another round
		check.NoError(t, d.SetRandomness(t.Context(), sale.ID, 7, []byte{1}, [32]byte{2}), d.SetRandomness(t.Context(), sale.ID, 7, []byte{4}, [32]byte{5}))
		check.NoError(t, d.SetSeed(t.Context(), sale.ID, "other", "seed")) // of another root
		check.Same(t, "before the seed", []string{line().Seed, line().Secret}, []string{"", ""})
		check.NoError(t, d.SetSeed(t.Context(), sale.ID, "root", "seed"), d.SetSeed(t.Context(), sale.ID, "root", "other"))
		last := line()
		check.Same(t, "drawn", []any{last.Root, last.Round, last.Signature, last.Randomness[:4], last.Seed, last.AwaitsSeed(), last.Secret != ""},
			[]any{"root", int64(7), "01", "0200", "seed", false, true})
		_, units, err := d.DrawnNumbers(t.Context(), sale.ID)
		check.Same(t, "units to draw", []any{units, err}, []any{int64(3), nil})
	})
}

// A call gives what is left if that is less than the entry wants, so that no unit waits for a large entry.
func TestCallGivesWhatIsLeft(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.line(t, 3, model.ModeLine, limit(2))
		d.starts(t, sale)
		_, verdict, err := d.Enter(t.Context(), sale.ID, []model.LineEntry{{UserID: "ann", Quantity: 2}, {UserID: "bob", Quantity: 2}, {UserID: "cat", Quantity: 1}})
		accepted(t, verdict, err)
		d.sealed(t, sale.ID)
		looked, left := d.calls(t, sale.ID, 0, 1, 2)
		check.Same(t, "two are called", []any{looked, left}, []any{2, false})
		check.Same(t, "units", []int{d.entry(t, sale.ID, "ann").Units, d.entry(t, sale.ID, "bob").Units}, []int{2, 1})
		check.Same(t, "stock", d.parts(t, sale.ID), []int64{0, 0, 3, 0})
	})
}

// What comes back after a rush has sold out goes by call to those who wait, and never to all.
func TestWaitingList(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 2, func(s *model.Sale) { s.Mode, s.WaitingList, s.CallSeconds = model.ModeRush, true, 60 })
		d.deduct(t, attempt(sale.ID, "ann", "k", 1))
		_, verdict, err := d.Enter(t.Context(), sale.ID, []model.LineEntry{{UserID: "cat", Quantity: 1}})
		check.Same(t, "before it is sold out", []any{verdict, err}, []any{model.NoLine, nil})
		d.deduct(t, attempt(sale.ID, "bob", "k", 1))
		d.enters(t, sale.ID, "cat")
		_, verdict, err = d.Cancel(t.Context(), "ann", attempt(sale.ID, "ann", "k", 1).ID)
		accepted(t, verdict, err)
		check.Same(t, "stock", d.parts(t, sale.ID), []int64{0, 1, 0, 1})
		check.Same(t, "eve, without a call", d.deduct(t, attempt(sale.ID, "eve", "k", 1))[0].Verdict, model.SoldOut)
		d.calls(t, sale.ID, 0)
		check.Same(t, "cat buys", d.buys(t, sale.ID, "cat"), model.Accepted)
		d.change(t, sale.ID, 3)
		check.Same(t, "stock", d.parts(t, sale.ID), []int64{0, 3, 0, 2})
		check.Same(t, "bob is at the limit", func() model.Verdict {
			d.enters(t, sale.ID, "bob")
			d.calls(t, sale.ID, 1)
			outcomes, err := d.SellCalled(t.Context(), sale.ID, []model.Attempt{attempt(sale.ID, "bob", "second", 1)})
			check.NoError(t, err)
			return outcomes[0].Verdict
		}(), model.LimitReached)
	})
}

// Without anybody who enters, the first unit that comes back begins the line too.
func TestReturnBeginsTheLine(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1, func(s *model.Sale) { s.Mode, s.WaitingList, s.CallSeconds = model.ModeRush, true, 60 })
		d.deduct(t, attempt(sale.ID, "ann", "k", 1))
		_, verdict, err := d.Cancel(t.Context(), "ann", attempt(sale.ID, "ann", "k", 1).ID)
		accepted(t, verdict, err)
		check.Same(t, "stock", d.parts(t, sale.ID), []int64{0, 1, 0, 0})
		check.Same(t, "eve", d.deduct(t, attempt(sale.ID, "eve", "k", 1))[0].Verdict, model.SoldOut)
	})
}

// The winners of a draw are the first ranks whose wish fits. The others wait, from the first one that was passed over, or
// have lost.
func TestDraw(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, waiting := range []bool{true, false} {
			sale := d.line(t, 4, model.ModeDraw, limit(3), func(s *model.Sale) { s.WaitingList = waiting })
			_, verdict, err := d.Enter(t.Context(), sale.ID, []model.LineEntry{
				{UserID: "ann", Quantity: 3}, {UserID: "bob", Quantity: 2}, {UserID: "cat", Quantity: 1}, {UserID: "dan", Quantity: 1},
			})
			accepted(t, verdict, err)
			d.starts(t, sale)
			_, verdict, err = d.Enter(t.Context(), sale.ID, []model.LineEntry{{UserID: "eve", Quantity: 1}})
			check.Same(t, "an entry after the start", []any{verdict, err}, []any{model.EntriesClosed, nil})
			d.sealed(t, sale.ID)
			id := func(user string) string { return orderIDs.Derive(user, sale.ID, "draw") }
			looked, over, err := d.Draw(t.Context(), sale.ID, 0, []int64{0, 1}, id)
			check.Same(t, "the first part", []any{looked, over, err}, []any{2, false, nil})
			looked, over, err = d.Draw(t.Context(), sale.ID, 0, []int64{0, 1}, id)
			check.Same(t, "another caller, at the same part", []any{looked, over, err}, []any{0, false, nil})
			looked, over, err = d.Draw(t.Context(), sale.ID, 2, []int64{2, 3}, id)
			check.Same(t, "the second part", []any{looked, over, err}, []any{1, true, nil})
			order, ok, err := d.Order(t.Context(), id("cat"))
			check.Same(t, "cat's order", []any{order.Status, order.Quantity, order.Source, ok, err}, []any{model.OrderPending, 1, model.FromDraw, true, nil})
			check.Same(t, "stock", d.parts(t, sale.ID), []int64{0, 0, 0, 4})
			offer, _, err := d.Offer(t.Context(), sale.ID)
			want := []any{model.PhaseOver, int64(1), nil}
			if waiting {
				want[0] = model.PhaseCalling
			}
			check.Same(t, "line", []any{offer.Line.Phase, offer.Line.Serving, err}, want)
			_, verdict, err = d.Cancel(t.Context(), "ann", id("ann"))
			accepted(t, verdict, err)
			if !waiting {
				continue
			}
			looked, _ = d.calls(t, sale.ID, 1, 2, 3)
			check.Same(t, "looked at", looked, 3)
			check.Same(t, "bob's and dan's calls", []int{d.entry(t, sale.ID, "bob").Units, d.entry(t, sale.ID, "dan").Units}, []int{2, 1})
		}
	})
}

// A time in which no caller saw the line does not count against the calls, and neither does a step of the clock.
func TestCallsOutliveAnOutage(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.line(t, 1, model.ModeLine)
		d.starts(t, sale)
		d.enters(t, sale.ID, "ann")
		d.sealed(t, sale.ID)
		d.calls(t, sale.ID, 0)
		until := d.entry(t, sale.ID, "ann").Until
		d.exec(t, "UPDATE sale_lines SET seen_at_ms = seen_at_ms - 100000 WHERE sale_id = ?", sale.ID)
		check.NoError(t, second(d.TendLine(t.Context(), sale.ID)))
		if longer := d.entry(t, sale.ID, "ann").Until.Sub(until); longer < 100*time.Second || longer > 200*time.Second {
			t.Errorf("the call is longer by %s", longer)
		}
		check.NoError(t, second(d.EndCalls(t.Context(), sale.ID, false, 10)))
		check.Same(t, "ann", d.entry(t, sale.ID, "ann").State, model.EntryCalled)
		// A step of the database's clock is the same as a step of all stored times the other way.
		for _, step := range []time.Duration{time.Hour, -time.Hour} {
			left := time.Until(d.entry(t, sale.ID, "ann").Until)
			d.exec(t, "UPDATE sale_lines SET seen_at_ms = seen_at_ms - ? WHERE sale_id = ?", step.Milliseconds(), sale.ID)
			d.exec(t, "UPDATE calls SET until_ms = until_ms - ? WHERE sale_id = ?", step.Milliseconds(), sale.ID)
			check.NoError(t, second(d.TendLine(t.Context(), sale.ID)))
			if now := time.Until(d.entry(t, sale.ID, "ann").Until); now < left-time.Minute || now > left+time.Minute {
				t.Errorf("after a step of %s the call has %s left, before it %s", step, now, left)
			}
		}
		d.change(t, sale.ID, 0, status(model.SaleClosed))
		offer, err := d.TendLine(t.Context(), sale.ID)
		check.Same(t, "after the end", []any{offer.Line.Phase, err}, []any{model.PhaseOver, nil})
		verdict, err := d.Leave(t.Context(), sale.ID, "ann")
		check.Same(t, "who has lost leaves", []any{verdict, err}, []any{model.NotFound, nil})
		check.NoError(t, second(d.EndCalls(t.Context(), sale.ID, true, 10)))
		check.Same(t, "stock", d.parts(t, sale.ID), []int64{0, 1, 0, 0})
		offer, err = d.TendLine(t.Context(), sale.ID)
		// The call could still have been used when the sale ended.
		check.Same(t, "calls that were not used", []any{offer.Stock.LapsedCalls, d.entry(t, sale.ID, "ann").State, err}, []any{int64(0), model.EntryLost, nil})
	})
}

// Two callers, entrants who come, buy, leave and cancel, and calls that end at once: the books balance at every end.
func TestLineUnderCrowds(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		t.Run("sale", func(t *testing.T) {
			sale := d.line(t, crowdQuota, model.ModeLine)
			d.starts(t, sale)
			d.crowd(t, sale.ID, sale.ID)
		})
		t.Run("campaign", func(t *testing.T) {
			campaign, sizes := d.campaignIn(t, model.ModeLine, 1, 1, crowdQuota/2, crowdQuota/2)
			d.crowd(t, campaign.ID, sizes...)
		})
	})
}

// crowdQuota is how many units a crowd wants.
const crowdQuota = 20

// crowd lets a crowd loose on a line: it enters, leaves, buys one of the sales of the line, and cancels, while two callers
// call and end calls.
func (d *testDB) crowd(t *testing.T, lineID string, saleIDs ...string) {
	const users = 60
	d.sealed(t, lineID)
	ctx, end := context.WithTimeout(t.Context(), check.Patience)
	defer end()
	var callers sync.WaitGroup
	over := make(chan struct{})
	for _, instance := range d.pair(t) {
		callers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				offer, err := instance.TendLine(ctx, lineID)
				if err == nil {
					_, err = instance.EndCalls(ctx, lineID, rand.N(4) == 0, 5)
				}
				if numbers := span(offer.Line.Serving, offer.Line.Entries); err == nil && len(numbers) > 0 {
					_, _, err = instance.Call(ctx, lineID, offer.Line.Serving, numbers)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	pair := d.pair(t)
	check.Together(users, func(i int) {
		instance, user := pair[i%2], fmt.Sprintf("user-%02d", i)
		_, verdict, err := instance.Enter(ctx, lineID, []model.LineEntry{{UserID: user, Quantity: 1}})
		accepted(t, verdict, err)
		for {
			line, _, err := instance.Offer(ctx, lineID)
			e, _, err2 := instance.EntryOf(ctx, lineID, user)
			if err := cmp.Or(err, err2); err != nil {
				t.Error(err)
				return
			}
			switch {
			case line.Stock.Free() == 0, e.State == model.EntryLapsed:
				return
			case e.State == model.EntryWaiting && e.Number < line.Line.Serving: // its call was ended as if the sale was over
				return
			case i%5 == 0:
				if _, err := instance.Leave(ctx, lineID, user); err != nil {
					t.Error(err)
				}
				return
			}
			saleID := saleIDs[rand.N(len(saleIDs))]
			outcomes, err := instance.SellCalled(ctx, saleID, []model.Attempt{attempt(saleID, user, "k", 1)})
			if err != nil {
				t.Error(err)
				return
			}
			if order := outcomes[0].Order; order != nil {
				if i%3 == 0 {
					_, _, err := instance.Cancel(ctx, user, order.ID)
					check.NoError(t, err)
				}
				return
			}
		}
	})
	close(over)
	callers.Wait()
	held := int64(0)
	for _, id := range saleIDs {
		books, _, err := d.Books(t.Context(), id)
		check.NoError(t, err)
		held += books.Stock.Held
	}
	if held == 0 || held > crowdQuota {
		t.Errorf("%d units are held", held)
	}
}

func span(from, to int64) (numbers []int64) {
	for n := from; n < to; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}
