package gate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
)

// verdicts has the outcome for each code that admit.lua returns.
var verdicts = [...]model.Outcome{
	0:  {Verdict: model.Accepted},
	1:  {Verdict: model.Accepted, Repeated: true},
	2:  {Verdict: model.IdempotencyMismatch, Repeated: true},
	3:  {Verdict: model.NoGate},
	4:  {Verdict: model.NoGate},
	5:  {Verdict: model.TooFrequent},
	6:  {Verdict: model.NotStarted},
	7:  {Verdict: model.Ended},
	8:  {Verdict: model.Paused},
	9:  {Verdict: model.BadRequest},
	10: {Verdict: model.LimitReached},
	11: {Verdict: model.SoldOut},
}

// Admit has the gates judge attempts on any sales. The answers are in the order of the attempts:
//   - Accepted has an Entry if the attempt was admitted, and is Repeated if the gate knew the id.
//   - IdempotencyMismatch: the gate knew the id with another quantity.
//   - NoGate: the gate is missing, closed, too old, or was installed on another Redis process.
//   - Unsure: the attempt needs units from other shards, and bringUnits gave up.
//   - TooFrequent, NotStarted, Ended, Paused, BadRequest for the quantity, LimitReached and SoldOut are refusals.
//
// If Err is set, the attempt may have been admitted.
func (g *Gate) Admit(ctx context.Context, attempts []model.Attempt) (answers []model.Admission) {
	var err error
	ctx, end := g.observe.Begin(ctx, observe.Step{
		Name: observe.Admit, Items: len(attempts), OrderID: func(i int) string { return attempts[i].ID },
	})
	defer func() { end(err) }()
	batches := byShard(attempts)
	g.judge(ctx, batches)
	sharded := slices.DeleteFunc(slices.Clone(batches), func(b *shardBatch) bool { return len(b.tags) == 1 })
	err = each(len(sharded), func(i int) error { return g.bringUnits(ctx, sharded[i]) })
	answers = make([]model.Admission, len(attempts))
	for _, b := range batches {
		err = cmp.Or(err, b.err)
		for at, place := range b.places {
			if b.err != nil {
				answers[place].Err = b.err
				continue
			}
			answers[place] = b.answers[at]
		}
	}
	return answers
}

// shardBatch has attempts that one shard of a gate judges in one run.
type shardBatch struct {
	tags     []string // of all shards of the gate
	home     int      // number of the shard that judges
	attempts []model.Attempt
	places   []int // of the attempts among those of Admit
	least    int64 // a gate of an older epoch must not admit
	campaign int   // number of the campaign in the arguments of admit.lua, from 1; 0: no common limit
	answers  []model.Admission
	err      error
}

// byShard makes a batch for each shard that has to judge some of the attempts.
func byShard(attempts []model.Attempt) (batches []*shardBatch) {
	type shard struct {
		gate model.GateRef
		home int
	}
	known := map[shard]*shardBatch{}
	for place, a := range attempts {
		at := shard{a.GateRef(), homeOf(a.UserID, a.GateRef().Shards)}
		b := known[at]
		if b == nil {
			b = &shardBatch{tags: tagsOf(at.gate), home: at.home}
			known[at], batches = b, append(batches, b)
		}
		b.attempts, b.places, b.least = append(b.attempts, a), append(b.places, place), max(b.least, a.LeastEpoch)
	}
	return batches
}

// judge runs admit.lua for batches, and stores in each batch the answers or the error.
func (g *Gate) judge(ctx context.Context, batches []*shardBatch) {
	common := func(from, to int) ([]string, []any) { return g.commonOf(batches[from:to]) }
	call := func(i int) ([]string, []any) { return batches[i].admission() }
	for i, reply := range g.scriptOnGates(ctx, admitScript, len(batches), common, call) {
		answers, err := g.answers(batches[i].attempts, reply)
		batches[i].answers, batches[i].err = answers, wrap("admit", err)
	}
}

// commonOf returns the keys and arguments that come before those of the gates in a run of admit.lua, and sets the field campaign
// of each batch. A campaign is listed once for each shard, because a user's units in a sale are in one shard.
func (g *Gate) commonOf(batches []*shardBatch) (keys []string, args []any) {
	type shard struct {
		campaignID string
		home       int
	}
	places, list, window := map[shard]int{}, [][]*shardBatch(nil), time.Duration(0)
	for _, b := range batches {
		for _, a := range b.attempts {
			window = max(window, a.Frequency.Window)
		}
		if b.campaign = 0; b.common() == nil {
			continue
		}
		at := shard{b.attempts[0].CampaignID, b.home}
		if places[at] == 0 {
			list = append(list, nil)
			places[at] = len(list)
		}
		b.campaign = places[at]
		list[b.campaign-1] = append(list[b.campaign-1], b)
	}
	keys, args = []string{countersKey(batches[0].tags[batches[0].home], g.isCluster())}, []any{g.instance, window.Milliseconds(), len(list)}
	for _, batches := range list {
		common, gate := batches[0].common(), batches[0].attempts[0].GateRef()
		for _, saleID := range common.SaleIDs {
			gate.SaleID = saleID
			keys = append(keys, unitsKey(tagOf(gate, batches[0].home)))
		}
		seen, users := map[string]bool{}, []any(nil)
		for _, b := range batches {
			for _, a := range b.attempts {
				if !seen[a.UserID] {
					seen[a.UserID], users = true, append(users, a.UserID)
				}
			}
		}
		args = append(append(args, common.Units, len(common.SaleIDs), len(users)), users...)
	}
	return keys, args
}

// common returns the limit of the sale's campaign that the last attempt of the batch has, or nil.
func (b *shardBatch) common() *model.CommonLimit { return b.attempts[len(b.attempts)-1].Common }

func (b *shardBatch) admission() (keys []string, args []any) {
	args = make([]any, 4, 4+5*len(b.attempts))
	for _, a := range b.attempts {
		args = append(args, idField(a.ID), a.UserID)
	}
	for _, a := range b.attempts {
		args = append(args, a.Quantity, a.IdempotencyKey, a.Frequency.Limit)
	}
	args[0], args[1], args[2], args[3] = b.attempts[0].SaleID, b.least, b.campaign, len(b.attempts)
	return keysOf(b.tags[b.home]), args
}

// answers converts a reply of admit.lua into the answers to attempts.
func (g *Gate) answers(attempts []model.Attempt, r gateReply) ([]model.Admission, error) {
	reply, _ := r.value.([]any)
	switch {
	case r.err != nil:
		return nil, r.err
	case len(reply) != 2*len(attempts)+1:
		return nil, fmt.Errorf("%d values for %d attempts", len(reply), len(attempts))
	}
	epoch, _ := reply[0].(int64)
	answers := make([]model.Admission, len(attempts))
	for i, a := range attempts {
		code, _ := reply[2*i+1].(int64)
		if code < 0 || code >= int64(len(verdicts)) {
			return nil, fmt.Errorf("unknown code %d", code)
		}
		answers[i].Outcome = verdicts[code]
		switch more := reply[2*i+2].(type) {
		case string:
			e := model.Entry{Attempt: a, StreamID: more, Epoch: epoch, Instance: g.instance}
			e.Frequency, e.LeastEpoch, e.Keyless, e.Common = model.Frequency{}, 0, false, nil // the stream lacks them, too
			answers[i].Entry = &e
		case int64:
			answers[i].RetryAfter = time.Duration(more) * time.Millisecond
		}
	}
	return answers, nil
}
