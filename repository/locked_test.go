package repository

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"flashsale/model"
)

// oneWay decides one attempt, which has to succeed.
type oneWay func(t *testing.T, a model.Attempt) model.Outcome

// eachWay runs a test over each way to decide a single attempt but Deduct, on each kind of database.
func eachWay(t *testing.T, test func(t *testing.T, d *testDB, decide oneWay)) {
	t.Helper()
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, decide := range map[string]oneWay{"locked": d.locked, "by a look": d.byLook} {
			t.Run(name, func(t *testing.T) { test(t, d, decide) })
		}
	})
}

func (d *testDB) locked(t *testing.T, a model.Attempt) model.Outcome {
	t.Helper()
	got, err := d.DeductLocked(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (d *testDB) byLook(t *testing.T, a model.Attempt) model.Outcome {
	t.Helper()
	look := d.look(t, a)
	if look.Decided != nil {
		return *look.Decided
	}
	return d.overwrite(t, a, look)
}

func (d *testDB) look(t *testing.T, a model.Attempt) model.Look {
	t.Helper()
	look, err := d.Look(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return look
}

func (d *testDB) overwrite(t *testing.T, a model.Attempt, look model.Look) model.Outcome {
	t.Helper()
	got, err := d.Overwrite(t.Context(), a, look)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// wantNothingOf checks that an attempt left neither an order nor a buyer's row behind.
func (d *testDB) wantNothingOf(t *testing.T, a model.Attempt) {
	t.Helper()
	if _, ok, err := d.Order(t.Context(), a.ID); ok || err != nil {
		t.Errorf("there is an order: %t, %v", ok, err)
	}
	if n := d.count(t, "SELECT COUNT(*) FROM buyers WHERE sale_id = ? AND user_id = ?", a.SaleID, a.UserID); n != 0 {
		t.Errorf("there are %d rows of the buyer", n)
	}
}

func TestEachWayWritesTheOrder(t *testing.T) {
	eachWay(t, func(t *testing.T, d *testDB, decide oneWay) {
		sale := d.newSale(t, 10, limit(3))
		if _, won, err := d.NextEpoch(t.Context(), sale.ID, 1, 1, 0); err != nil || !won {
			t.Fatalf("no new epoch: %v", err)
		}
		version := d.stock(t, sale.ID).Version
		before, a := d.now(t), attempt(sale.ID, "alice", "k", 2)
		got := decide(t, a)
		after := d.now(t)
		if got.Verdict != model.Accepted || got.Repeated || got.Order == nil {
			t.Fatalf("alice got %+v", got)
		}
		made := got.Order.CreatedAt
		if made.Before(before) || made.After(after) {
			t.Errorf("made at %s, not from %s to %s", made, before, after)
		}
		want := model.Order{
			ID: a.ID, SaleID: sale.ID, UserID: "alice", Quantity: 2, AmountCents: 3980, Currency: "CNY",
			Status: model.OrderPending, Source: model.FromDatabase, Epoch: 2, RequestKey: "k", RequestHash: a.RequestHash,
			CreatedAt: made, ExpiresAt: made.Add(900 * time.Second),
		}
		if *got.Order != want {
			t.Errorf("the outcome's order is\n%+v, want\n%+v", *got.Order, want)
		}
		if stored := d.order(t, a.ID); stored != want {
			t.Errorf("the stored order is\n%+v, want\n%+v", stored, want)
		}
		d.wantUnits(t, sale.ID, units{available: 8, held: 2})
		if now := d.stock(t, sale.ID).Version; now != version+1 {
			t.Errorf("the row's version was %d and is %d", version, now)
		}
		if n := d.live(t, sale.ID, "alice"); n != 2 {
			t.Errorf("alice has %d units", n)
		}
	})
}

// Each row says which of several reasons to refuse is told. Deduct says the same, and a refusal changes nothing.
func TestEachWayRefusesAsDeductDoes(t *testing.T) {
	hours := func(n time.Duration) func(*model.Sale) {
		return func(s *model.Sale) {
			s.StartsAt, s.EndsAt = s.StartsAt.Add(n*time.Hour), s.EndsAt.Add(n*time.Hour)
		}
	}
	status := func(status model.SaleStatus) func(*model.Sale) {
		return func(s *model.Sale) { s.Status = status }
	}
	paused, closed := status(model.SalePaused), status(model.SaleClosed)
	tests := map[string]struct {
		quota        int64
		mine, others int // units sold before, at a limit of 2
		asked        int
		edits        []func(*model.Sale)
		want         model.Verdict
	}{
		"before the start of a paused sale":            {9, 0, 0, 1, []func(*model.Sale){hours(2), paused}, model.NotStarted},
		"before the start, at the limit":               {9, 2, 0, 1, []func(*model.Sale){hours(2)}, model.NotStarted},
		"before the start of a sale without units":     {2, 0, 2, 1, []func(*model.Sale){hours(2)}, model.NotStarted},
		"before the start of a closed sale":            {9, 0, 0, 1, []func(*model.Sale){hours(2), closed}, model.Ended},
		"after the end of a paused sale":               {9, 0, 0, 1, []func(*model.Sale){hours(-2), paused}, model.Ended},
		"after the end, at the limit":                  {9, 2, 0, 1, []func(*model.Sale){hours(-2)}, model.Ended},
		"after the end, sold out":                      {2, 0, 2, 1, []func(*model.Sale){hours(-2)}, model.Ended},
		"closed, at the limit":                         {9, 2, 0, 1, []func(*model.Sale){closed}, model.Ended},
		"paused, at the limit":                         {9, 2, 0, 1, []func(*model.Sale){paused}, model.Paused},
		"paused and sold out":                          {2, 0, 2, 1, []func(*model.Sale){paused}, model.Paused},
		"more than the limit at once":                  {9, 0, 0, 3, nil, model.LimitReached},
		"at the limit":                                 {9, 2, 0, 1, nil, model.LimitReached},
		"over the limit with what is held":             {9, 1, 0, 2, nil, model.LimitReached},
		"at the limit of a sale without units":         {4, 2, 2, 1, nil, model.LimitReached},
		"over the limit, and more than is left":        {4, 1, 2, 2, nil, model.LimitReached},
		"more than the limit, and nothing is left":     {2, 0, 2, 3, nil, model.LimitReached},
		"nothing is left":                              {2, 0, 2, 1, nil, model.SoldOut},
		"fewer are left than asked for":                {3, 0, 2, 2, nil, model.SoldOut},
		"the last units, up to the limit, all at once": {4, 0, 2, 2, nil, model.Accepted},
	}
	eachWay(t, func(t *testing.T, d *testDB, decide oneWay) {
		for name, tc := range tests {
			t.Run(name, func(t *testing.T) {
				sale := d.newSale(t, tc.quota, limit(2))
				if tc.mine > 0 {
					d.buy(t, sale.ID, "me", tc.mine)
				}
				for i := range tc.others {
					d.buy(t, sale.ID, fmt.Sprint("other-", i), 1)
				}
				for _, edit := range tc.edits {
					d.change(t, sale.ID, 0, edit)
				}
				a, before := attempt(sale.ID, "me", "k", tc.asked), d.stock(t, sale.ID)
				if tc.want == model.Accepted {
					if got := decide(t, a); got.Verdict != tc.want || got.Repeated {
						t.Errorf("got %+v", got)
					}
					return
				}
				for _, got := range []model.Outcome{decide(t, a), d.deduct(t, sale.ID, a)[0], decide(t, a)} {
					if got != (model.Outcome{Verdict: tc.want}) {
						t.Errorf("got %+v, want %s", got, tc.want)
					}
				}
				if after := d.stock(t, sale.ID); after != before {
					t.Errorf("the stock was %+v and is %+v", before, after)
				}
				if n := d.live(t, sale.ID, "me"); n != tc.mine {
					t.Errorf("the user has %d units against the limit, not %d", n, tc.mine)
				}
				if tc.mine == 0 {
					d.wantNothingOf(t, a)
				}
			})
		}
		unknown := attempt(model.NewSaleID(), "me", "k", 1)
		if got := decide(t, unknown); got != (model.Outcome{Verdict: model.NotFound}) {
			t.Errorf("an unknown sale: %+v", got)
		}
	})
}

// A known id gets its earlier answer, before any refusal that would now apply, and moves nothing again.
func TestEachWayReplaysAKnownID(t *testing.T) {
	eachWay(t, func(t *testing.T, d *testDB, decide oneWay) {
		for name, change := range map[string]func(t *testing.T, sale model.Sale, order model.Order){
			"as it was":          func(*testing.T, model.Sale, model.Order) {},
			"sold out meanwhile": func(t *testing.T, sale model.Sale, _ model.Order) { d.buy(t, sale.ID, "you", 1) },
			"paused meanwhile": func(t *testing.T, sale model.Sale, _ model.Order) {
				d.change(t, sale.ID, 0, func(s *model.Sale) { s.Status = model.SalePaused })
			},
			"cancelled meanwhile": func(t *testing.T, _ model.Sale, order model.Order) {
				if _, verdict, err := d.Cancel(t.Context(), "me", order.ID); err != nil || verdict != model.Accepted {
					t.Fatalf("cancel: %s, %v", verdict, err)
				}
			},
		} {
			t.Run(name, func(t *testing.T) {
				sale := d.newSale(t, 2)
				a := attempt(sale.ID, "me", "k", 1)
				change(t, sale, *decide(t, a).Order)
				stock, order := d.stock(t, sale.ID), d.order(t, a.ID)
				again := decide(t, a)
				if again.Verdict != model.Accepted || !again.Repeated || again.Order == nil || *again.Order != order {
					t.Errorf("again: %+v, of the order %+v", again, order)
				}
				other := a
				other.Quantity, other.RequestHash = 7, model.HashRequest(7)
				if got := decide(t, other); got != (model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}) {
					t.Errorf("another wish under the same key got %+v", got)
				}
				if now := d.stock(t, sale.ID); now != stock {
					t.Errorf("repeats moved the stock from %+v to %+v", stock, now)
				}
			})
		}
	})
}

// A durable refusal is told again although units have come back.
func TestEachWayReplaysADurableRefusal(t *testing.T) {
	eachWay(t, func(t *testing.T, d *testDB, decide oneWay) {
		sale := d.newSale(t, 1)
		list := attempts(sale.ID, "u", 2)
		wantVerdicts(t, d.settle(t, sale.ID, list...), model.Accepted, model.SoldOut)
		d.change(t, sale.ID, 5, nil)
		got := decide(t, list[1])
		if got.Verdict != model.SoldOut || !got.Repeated || got.Order == nil || got.Order.Status != model.OrderRejected {
			t.Errorf("%+v", got)
		}
		d.wantUnits(t, sale.ID, units{available: 5, held: 1})
	})
}

// What slips past the front door stops at the schema.
func TestEachWayOfNoUnitsChangesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, quantity := range []int{0, -1, -5} {
			sale := d.newSale(t, 5)
			d.buy(t, sale.ID, "you", 1)
			before, a := d.stock(t, sale.ID), attempt(sale.ID, "me", "k", quantity)
			if got, err := d.DeductLocked(t.Context(), a); err == nil || got != (model.Outcome{}) {
				t.Errorf("%d, locked: %+v, %v", quantity, got, err)
			}
			if got, err := d.Overwrite(t.Context(), a, d.look(t, a)); err == nil || got != (model.Outcome{}) {
				t.Errorf("%d, by a look: %+v, %v", quantity, got, err)
			}
			if after := d.stock(t, sale.ID); after != before {
				t.Errorf("%d: the stock was %+v and is %+v", quantity, before, after)
			}
			d.wantNothingOf(t, a)
		}
	})
}

// DeductLocked decides by what it finds in the locked row, whatever it read before.
func TestLockedDecidesByTheLockedRow(t *testing.T) {
	type scene struct {
		other *testDB
		sale  model.Sale // at most 2 a user
		mine  model.Attempt
		held  model.Order // of somebody else
	}
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			quota     int64 // one of it is held
			meanwhile func(t *testing.T, s scene)
			want      model.Verdict
			repeated  bool
		}{
			"another buyer": {5, func(t *testing.T, s scene) { s.other.buy(t, s.sale.ID, "rival", 1) }, model.Accepted, false},
			"all but one are sold": {5, func(t *testing.T, s scene) {
				s.other.buy(t, s.sale.ID, "rival", 2)
				s.other.buy(t, s.sale.ID, "rival2", 1)
			}, model.SoldOut, false},
			"all but these are sold": {5, func(t *testing.T, s scene) { s.other.buy(t, s.sale.ID, "rival", 2) }, model.Accepted, false},
			"a settled batch takes all": {5, func(t *testing.T, s scene) {
				s.other.settle(t, s.sale.ID, attempts(s.sale.ID, "u", 4)...)
			}, model.SoldOut, false},
			"sold, and a unit came back": {5, func(t *testing.T, s scene) {
				s.other.buy(t, s.sale.ID, "rival", 2)
				s.other.buy(t, s.sale.ID, "rival2", 1)
				if _, verdict, err := s.other.Cancel(t.Context(), s.held.UserID, s.held.ID); err != nil || verdict != model.Accepted {
					t.Errorf("cancel: %s, %v", verdict, err)
				}
			}, model.Accepted, false},
			"too few were left, and a unit came": {2, func(t *testing.T, s scene) { s.other.change(t, s.sale.ID, 1, nil) }, model.Accepted, false},
			"the user bought elsewhere":          {5, func(t *testing.T, s scene) { s.other.buy(t, s.sale.ID, "me", 1) }, model.LimitReached, false},
			"this attempt is settled":            {5, func(t *testing.T, s scene) { s.other.settle(t, s.sale.ID, s.mine) }, model.Accepted, true},
			"this attempt is refused": {5, func(t *testing.T, s scene) {
				if _, err := s.other.Refuse(t.Context(), entries(s.mine)[0], model.ReasonFailed); err != nil {
					t.Errorf("refuse: %v", err)
				}
			}, model.ReasonFailed, true},
		} {
			t.Run(name, func(t *testing.T) {
				sale := d.newSale(t, tc.quota, limit(2))
				s := scene{other: d.another(t), sale: sale, mine: attempt(sale.ID, "me", "k", 2)}
				s.held = d.buy(t, sale.ID, "holder", 1)
				var between model.Stock
				var rows int64
				ofMine := func() int64 {
					return d.count(t, "SELECT COUNT(*) FROM buyers WHERE sale_id = ? AND user_id = ?", sale.ID, "me")
				}
				d.between(t, func() {
					tc.meanwhile(t, s)
					between, rows = s.other.stock(t, sale.ID), ofMine()
				})
				got := d.locked(t, s.mine)
				if got.Verdict != tc.want || got.Repeated != tc.repeated {
					t.Errorf("got %+v, want %s, repeated %t", got, tc.want, tc.repeated)
				}
				want := between
				if tc.want == model.Accepted && !tc.repeated {
					want.Available, want.Held, want.Version = want.Available-2, want.Held+2, want.Version+1
					want.GateVersion = want.Version
				} else if n := ofMine(); n != rows {
					t.Errorf("there were %d rows of the buyer, and are %d", rows, n)
				}
				if after := d.stock(t, sale.ID); after != want {
					t.Errorf("the stock was %+v and is %+v, want %+v", between, after, want)
				}
			})
		}
	})
}

// A look reads and writes nothing: it tells the offer with its stock, the database's time, and what is decided.
func TestLook(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		open, soldOut := d.newSale(t, 5), d.newSale(t, 1)
		mine, last := attempt(open.ID, "me", "k", 1), attempt(soldOut.ID, "first", "k", 1)
		d.deduct(t, open.ID, mine)
		d.deduct(t, soldOut.ID, last)
		began := false
		d.between(t, func() { began = true })
		repeat := model.Outcome{Verdict: model.Accepted, Repeated: true}
		for name, tc := range map[string]struct {
			attempt model.Attempt
			want    *model.Outcome // but for its order
		}{
			"something to write":                    {attempt(open.ID, "you", "k", 1), nil},
			"more than the limit, which is not yet": {attempt(open.ID, "me", "k2", 1), nil},
			"a repeat":                              {mine, &repeat},
			"a repeat, sold out":                    {last, &repeat},
			"sold out":                              {attempt(soldOut.ID, "you", "k", 1), &model.Outcome{Verdict: model.SoldOut}},
			"sold out, at the limit":                {attempt(soldOut.ID, "first", "k2", 1), &model.Outcome{Verdict: model.LimitReached}},
			"unknown":                               {attempt(model.NewSaleID(), "you", "k", 1), &model.Outcome{Verdict: model.NotFound}},
		} {
			t.Run(name, func(t *testing.T) {
				before := d.now(t)
				look := d.look(t, tc.attempt)
				after := d.now(t)
				if tc.want == nil {
					if look.Now.Before(before) || look.Now.After(after) {
						t.Errorf("its time is %s, not from %s to %s", look.Now, before, after)
					}
					offer, _, err := d.Offer(t.Context(), tc.attempt.SaleID)
					if err != nil || look.Decided != nil || look.Offer != offer {
						t.Errorf("it decided %+v on\n%+v, which is\n%+v, %v", look.Decided, look.Offer, offer, err)
					}
				} else if got := look.Decided; got == nil || got.Verdict != tc.want.Verdict || got.Repeated != tc.want.Repeated {
					t.Errorf("it decided %+v, want %+v", got, tc.want)
				}
				if began {
					t.Error("it began a transaction")
				}
			})
		}
	})
}

// Of two who looked at the same row, the later takes the earlier's units a second time.
func TestOverwriteLosesUpdates(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 3, limit(2))
		first, second := attempt(sale.ID, "first", "k", 1), attempt(sale.ID, "second", "k", 2)
		looks := []model.Look{d.look(t, first), d.look(t, second)}
		wantVerdicts(t, []model.Outcome{d.overwrite(t, first, looks[0]), d.overwrite(t, second, looks[1])}, model.Accepted, model.Accepted)
		d.wantUnits(t, sale.ID, units{available: 1, held: 2})
		if version := d.stock(t, sale.ID).Version; version != looks[0].Offer.Stock.Version+2 {
			t.Errorf("version %d after %d and two writes", version, looks[0].Offer.Stock.Version)
		}
		books, _, err := d.Books(t.Context(), sale.ID)
		if err != nil || books.Orders[model.OrderPending] != 2 || books.Units[model.OrderPending] != 3 || len(books.Violations()) != 1 {
			t.Errorf("the books are %+v, %v", books, err)
		}
		d.erase(t, sale.ID) // the books of what stays have to balance
	})
}

// However old its look is, what the schema and the buyer's row hold is not written over.
func TestOverwriteStopsAtTheSchema(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		t.Run("units that are paid", func(t *testing.T) {
			sale := d.newSale(t, 4, limit(3))
			a := attempt(sale.ID, "me", "k", 1)
			look := d.look(t, a)
			d.pay(t, d.startPayment(t, d.buy(t, sale.ID, "rival", 3)), "txn "+sale.ID)
			got, err := d.Overwrite(t.Context(), a, look)
			if err == nil || got != (model.Outcome{}) || errors.Is(err, model.ErrUnavailable) {
				t.Errorf("%+v, %v", got, err)
			}
			d.wantUnits(t, sale.ID, units{available: 1, paid: 3})
			d.wantNothingOf(t, a)
		})
		t.Run("more than it saw", func(t *testing.T) {
			sale := d.newSale(t, 1, limit(2))
			a := attempt(sale.ID, "me", "k", 2)
			if got := d.overwrite(t, a, d.look(t, a)); got != (model.Outcome{Verdict: model.SoldOut}) {
				t.Errorf("%+v", got)
			}
			d.wantNothingOf(t, a)
		})
		t.Run("a buyer's limit", func(t *testing.T) {
			sale := d.newSale(t, 5)
			first, second := attempt(sale.ID, "me", "k1", 1), attempt(sale.ID, "me", "k2", 1)
			looks := []model.Look{d.look(t, first), d.look(t, second)}
			got := []model.Outcome{d.overwrite(t, first, looks[0]), d.overwrite(t, second, looks[1])}
			wantVerdicts(t, got, model.Accepted, model.LimitReached)
			d.wantUnits(t, sale.ID, units{available: 4, held: 1})
		})
		t.Run("the same attempt", func(t *testing.T) {
			sale := d.newSale(t, 5)
			a := attempt(sale.ID, "me", "k", 1)
			looks := []model.Look{d.look(t, a), d.look(t, a)}
			first, again := d.overwrite(t, a, looks[0]), d.overwrite(t, a, looks[1])
			if first.Repeated || again.Verdict != model.Accepted || !again.Repeated || *again.Order != *first.Order {
				t.Errorf("first %+v, again %+v", first, again)
			}
			d.wantUnits(t, sale.ID, units{available: 4, held: 1})
		})
	})
}

// Whatever writes stock rows, through an exclusive store it does so while it holds the lock, and gives it back.
func TestExclusive(t *testing.T) {
	type scene struct {
		d     *testDB // without the lock
		sale  model.Sale
		order model.Order // pending
	}
	writers := map[string]func(t *testing.T, s scene) func(x *testDB){
		"a sale":      func(t *testing.T, _ scene) func(*testDB) { return func(x *testDB) { x.newSale(t, 1) } },
		"a change":    func(t *testing.T, s scene) func(*testDB) { return func(x *testDB) { x.change(t, s.sale.ID, 1, nil) } },
		"an erasure":  func(t *testing.T, s scene) func(*testDB) { return func(x *testDB) { x.erase(t, s.sale.ID) } },
		"a deduction": func(t *testing.T, s scene) func(*testDB) { return func(x *testDB) { x.buy(t, s.sale.ID, "me", 1) } },
		"a settlement": func(t *testing.T, s scene) func(*testDB) {
			return func(x *testDB) { x.settle(t, s.sale.ID, attempts(s.sale.ID, "u", 2)...) }
		},
		"a locked deduction": func(t *testing.T, s scene) func(*testDB) {
			return func(x *testDB) { x.locked(t, attempt(s.sale.ID, "me", "k", 1)) }
		},
		"an overwriting": func(t *testing.T, s scene) func(*testDB) {
			return func(x *testDB) { x.byLook(t, attempt(s.sale.ID, "me", "k", 1)) }
		},
		"a deduction that fails": func(t *testing.T, s scene) func(*testDB) {
			return func(x *testDB) {
				if got, err := x.DeductLocked(t.Context(), attempt(s.sale.ID, "me", "k", 0)); err == nil {
					t.Errorf("%+v", got)
				}
			}
		},
		"a cancellation": func(t *testing.T, s scene) func(*testDB) {
			return func(x *testDB) {
				if _, verdict, err := x.Cancel(t.Context(), s.order.UserID, s.order.ID); err != nil || verdict != model.Accepted {
					t.Errorf("%s, %v", verdict, err)
				}
			}
		},
		"an expiry": func(t *testing.T, s scene) func(*testDB) {
			s.d.overdue(t, time.Hour, s.order.ID)
			return func(x *testDB) {
				if released, err := x.ExpireDue(t.Context(), 0, 10); err != nil || len(released) != 1 {
					t.Errorf("%v, %v", released, err)
				}
			}
		},
		"a payment": func(t *testing.T, s scene) func(*testDB) {
			payment := s.d.startPayment(t, s.order)
			return func(x *testDB) { x.pay(t, payment, "txn "+payment.ID) }
		},
		"a refund": func(t *testing.T, s scene) func(*testDB) {
			s.d.pay(t, s.d.startPayment(t, s.order), "txn "+s.order.ID)
			return func(x *testDB) {
				if _, verdict, err := x.RefundOrder(t.Context(), s.order.ID, "op"); err != nil || verdict != model.Accepted {
					t.Errorf("%s, %v", verdict, err)
				}
			}
		},
	}
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, prepare := range writers {
			t.Run(name, func(t *testing.T) {
				lock := make(chan struct{}, 1)
				exclusive := &testDB{Store: d.Exclusive(lock), address: d.address}
				s := scene{d: d, sale: d.newSale(t, 5)}
				s.order = d.buy(t, s.sale.ID, "holder", 1)
				write := prepare(t, s)
				began := false
				d.between(t, func() {
					if began = true; len(lock) != 1 {
						t.Error("it writes without the lock")
					}
				})
				write(exclusive)
				if !began || len(lock) != 0 {
					t.Errorf("it wrote: %t; the lock is held: %t", began, len(lock) == 1)
				}
			})
		}
	})
}

// Whoever leaves the line for the lock has written nothing, and has not taken it along.
func TestExclusiveLetsGoOfWhoLeaves(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		lock := make(chan struct{}, 1)
		exclusive := d.Exclusive(lock)
		sale := d.newSale(t, 2)
		d.between(t, func() {
			if len(lock) != 0 {
				t.Error("the store that it was made from takes the lock, too")
			}
		})
		order := d.buy(t, sale.ID, "holder", 1)
		began := false
		d.between(t, func() { began = true })
		lock <- struct{}{}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if _, verdict, err := exclusive.Cancel(ctx, order.UserID, order.ID); !errors.Is(err, context.Canceled) || began {
			t.Errorf("%s, %v; it began: %t", verdict, err, began)
		}
		if len(lock) != 1 {
			t.Error("it gave a lock back that it did not hold")
		}
		<-lock
		if _, verdict, err := exclusive.Cancel(t.Context(), order.UserID, order.ID); err != nil || verdict != model.Accepted || !began {
			t.Errorf("%s, %v; it began: %t", verdict, err, began)
		}
		d.wantUnits(t, sale.ID, units{available: 2})
	})
}
