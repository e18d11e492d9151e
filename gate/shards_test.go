package gate

import (
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// Most tests of this package run on gates in several shards too (eachGate). The tests here are of what only such gates do.

// field reads a number of a shard's gate.
func (b *bench) field(o model.Offer, shard int, name string) int64 {
	b.Helper()
	return number(must(b, b.client.HGet(b.Context(), gateKey(tagsOf(o.GateRef())[shard]), name)))
}

// set changes fields of a shard's gate.
func (b *bench) set(o model.Offer, shard int, fieldsAndValues ...any) {
	b.Helper()
	must(b, b.client.HSet(b.Context(), gateKey(tagsOf(o.GateRef())[shard]), fieldsAndValues...))
}

// openWith opens a gate in one shard for each number of units left.
func (b *bench) openWith(limit int, lefts ...int64) model.Offer {
	b.Helper()
	o := offerIn(len(lefts))
	o.LimitPerUser = limit
	b.open(o)
	for shard, left := range lefts {
		b.set(o, shard, "left", left)
	}
	return o
}

// wantLefts checks the units left in each shard.
func (b *bench) wantLefts(o model.Offer, want ...int64) {
	b.Helper()
	got := make([]int64, o.Shards)
	for shard := range got {
		got[shard] = b.field(o, shard, "left")
	}
	check.Same(b, "the units left in the shards", got, want)
}

func TestUnitsAreDividedEvenly(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offerIn(6)
		o.Stock.Available = 20
		b.wantLefts(b.open(o), 4, 4, 3, 3, 3, 3)
	})
}

// TestShardsOpenTogether: a gate is open only if all its shards are open and of the same epoch.
func TestShardsOpenTogether(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offerIn(3))
		for shard := range o.Shards {
			b.set(o, shard, "open", "0")
			b.want(o, model.GateState{Exists: true, Epoch: 1, Left: 10})
			b.set(o, shard, "open", "1", "epoch", 2)
			b.want(o, model.GateState{Exists: true, Epoch: 2, Left: 10})
			b.set(o, shard, "epoch", 1)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 10})

		if _, err := b.gate.Install(b.Context(), 2, []int64{0, 1, 0}, kit.ContentsOf(o)); !errors.Is(err, model.ErrStreamMoved) {
			b.Errorf("an install when one stream has moved: %v", err)
		}
		// A newer rebuild has marked one shard only.
		check.Same(b, "closed", b.close(o, 3), true)
		b.set(o, 2, "coming", 4)
		check.Same(b, "closed for an epoch that has been overtaken", b.close(o, 3), false)
		check.Error(b, "an overtaken rebuild", b.tryInstall(3, kit.ContentsOf(o)), model.ErrNewerGate)
		for shard := range o.Shards {
			got := b.verdict(attempt(o, userAt(o, shard, 0), 1))
			check.Same(b, fmt.Sprint("shard ", shard, " after the overtaken rebuild"), got, model.NoGate)
		}
		b.install(4, kit.ContentsOf(o))
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 4, Left: 10})
	})
}

// TestShardsOvertakenBeforeTheyOpen: a rebuild has installed a shard when a newer one closes it. The shard stays closed.
func TestShardsOvertakenBeforeTheyOpen(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := offerIn(2)
		tag := tagsOf(o.GateRef())[0]
		keys := append(keysOf(tag), "fs:"+tag+":staged")
		must(b, b.client.HSet(b.Context(), keys[3], nobody, 0))
		must(b, installScript.Run(b.Context(), b.client, keys, 1, 0, expiry(o.Sale), 0))
		opened := func() int64 { return must(b, openScript.Run(b.Context(), b.client, keys[:1], 1)).(int64) }
		check.Same(b, "epoch and open", []int64{b.field(o, 0, "epoch"), b.field(o, 0, "open")}, []int64{1, 0})
		check.Same(b, "closed", b.close(o, 2), true)
		check.Same(b, "opened for an older epoch", []int64{opened(), b.field(o, 0, "open")}, []int64{0, 0})
		must(b, b.client.Del(b.Context(), keys[0]))
		check.Same(b, "the answer of a missing shard", opened(), 0)
	})
}

// TestRebuildOfShards: each shard keeps its own entries, even if the streams of several shards have the same stream ids.
func TestRebuildOfShards(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offerIn(3))
		var made []model.Attempt
		for shard, tag := range tagsOf(o.GateRef()) {
			a := attempt(o, userAt(o, shard, 0), 1)
			made = append(made, a)
			text := fmt.Sprintf("%s %s 1 1 here %s", a.ID, a.UserID, a.IdempotencyKey)
			check.NoError(b, b.client.Do(b.Context(), "XADD", streamKey(tag), "7-7", "attempt", text).Err())
		}
		c := kit.ContentsOf(o)
		settled := made[1]
		c.Quantities[settled.ID], c.Owners[settled.ID], c.Units[settled.UserID] = settled.Quantity, settled.UserID, 1
		c.Of.Stock.Available = 9
		b.install(2, c)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 7, Inflight: 2, Stream: 2})
		left := b.read(o, all)
		if len(left) != 2 || slices.ContainsFunc(left, func(e model.Entry) bool { return e.ID == settled.ID }) {
			b.Errorf("the entries are %v", left)
		}
		b.settle(left, accepted)
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 7})
	})
}

// TestMovedUnits shows which shards send how many units for an attempt in shard 0.
func TestMovedUnits(t *testing.T) {
	eachRedis(t, func(b *bench) {
		for _, tc := range []struct {
			name         string
			lefts, after []int64
			quantity     int
			want         model.Verdict
		}{
			{"the largest shard lends half, and the other is not asked", []int64{0, 40, 100}, []int64{49, 40, 50}, 1, model.Accepted},
			{"only the missing units move", []int64{3, 4, 0}, []int64{0, 2, 0}, 5, model.Accepted},
			{"more than half goes if it is needed", []int64{1, 4, 0}, []int64{0, 0, 0}, 5, model.Accepted},
			{"several shards send", []int64{1, 1, 1}, []int64{0, 0, 0}, 3, model.Accepted},
			{"no unit moves if all of them are too few", []int64{1, 1, 1}, []int64{1, 1, 1}, 4, model.SoldOut},
		} {
			o := b.openWith(9, tc.lefts...)
			check.Same(b, tc.name, b.verdict(attempt(o, userAt(o, 0, 0), tc.quantity)), tc.want)
			b.wantLefts(o, tc.after...)
		}
	})
}

// TestMoveIsGivenOnce: a transfer in that runs twice because its reply was lost gives its units once.
func TestMoveIsGivenOnce(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offerIn(2))
		for _, move := range []struct {
			epoch, units, number int64
			by                   string
			given                int64
		}{
			{1, 3, 7, "here", 1}, {1, 3, 7, "here", 1}, {1, 100, 6, "here", 1}, // the last two are repeated
			{1, 4, 7, "there", 1}, {1, 5, 8, "here", 1}, {2, 50, 9, "here", 0},
		} {
			keys := []string{gateKey(tagsOf(o.GateRef())[0])}
			script := transferInScript.Run(b.Context(), b.client, keys, move.epoch, move.units, move.by, move.number)
			check.Same(b, fmt.Sprintf("what %+v gives", move), must(b, script), any(move.given))
		}
		check.Same(b, "left and received", []int64{b.field(o, 0, "left"), b.field(o, 0, "received")}, []int64{5 + 12, 12})
	})
}

// TestUnitsLostOnTheirWay: an instance dies between transfer_out.lua and transfer_in.lua. The gate then has too few units, never too
// many, and no attempt is refused as sold out, since the database has the units.
func TestUnitsLostOnTheirWay(t *testing.T) {
	eachRedis(t, func(b *bench) {
		o := b.open(offerIn(2))
		dead := b.as("dead").gate
		from, to := tagsOf(o.GateRef())[0], tagsOf(o.GateRef())[1]
		if n, err := dead.transfer(b.Context(), transferOutScript, -1, from, 1, 4); err != nil || n != 4 {
			b.Fatal(n, err)
		}
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 6})
		got := map[model.Verdict]int{}
		for shard := range o.Shards {
			for i := range 8 { // more than the shard has
				got[b.verdict(attempt(o, userAt(o, shard, i), 1))]++
			}
		}
		check.Same(b, "the verdicts", got, map[model.Verdict]int{model.Accepted: 6, model.Unsure: 10})
		check.Same(b, "closed", b.close(o, 2), true)
		if _, err := dead.transfer(b.Context(), transferOutScript, -1, from, 1, 1); !errors.Is(err, errClosed) {
			b.Errorf("a closed shard sent units: %v", err)
		}
		b.install(2, kit.ContentsOf(o))
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 2, Left: 4, Inflight: 6, Stream: 6})
		if _, err := dead.transfer(b.Context(), transferInScript, 0, to, 1, 4); !errors.Is(err, errClosed) {
			b.Errorf("a shard took units of an older epoch: %v", err)
		}
		if _, err := dead.transfer(b.Context(), transferOutScript, -1, from, 1, 1); !errors.Is(err, errClosed) {
			b.Errorf("a shard sent units of a newer epoch: %v", err)
		}
	})
}

// TestUnsureIfUnitsCannotBeMoved: an attempt that needs units of another shard is not refused as sold out while that shard
// is closed, or while another move takes too long. Attempts for which the units of their own shard suffice are admitted.
func TestUnsureIfUnitsCannotBeMoved(t *testing.T) {
	eachRedis(t, func(b *bench) {
		b.gate.TransferTime = transferTime // the test waits for its end
		for name, block := range map[string]func(o model.Offer) (end func()){
			"a shard is closed": func(o model.Offer) func() {
				b.set(o, 1, "open", "0")
				return func() { b.set(o, 1, "open", "1") }
			},
			"another move does not end": func(o model.Offer) func() {
				lane := b.gate.lanes[crc32.ChecksumIEEE([]byte(o.ID))%transferLanes]
				lane <- struct{}{}
				return func() { <-lane }
			},
		} {
			o := b.openWith(2, 1, 2)
			end := block(o)
			for i, want := range []model.Verdict{model.Accepted, model.Unsure} {
				check.Same(b, fmt.Sprintf("%s, attempt %d", name, i), b.verdict(attempt(o, userAt(o, 0, i), 1)), want)
			}
			end()
			b.admit(attempt(o, userAt(o, 0, 2), 1))
		}
	})
}
