package gate

import (
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/internal/pause"
	"flashsale/model"
)

const (
	// transferTime is the default of Gate.TransferTime, long enough for many round trips.
	transferTime = 500 * time.Millisecond
	// transferTries bounds the looks of bringUnits at all shards: other attempts may take the units that were seen.
	transferTries = 10
	// transferPause is how long bringUnits waits for units that are on their way.
	transferPause = 5 * time.Millisecond
	// transferLanes bounds the transfers of an instance at one time.
	transferLanes = 64
)

// bringUnits looks at all shards for those attempts of a batch that their own shard has refused as sold out. If the gate has
// enough units for an attempt, bringUnits moves them to this shard. Then it has the attempts judged again. Their verdict is
// model.Unsure if the gate is not open, if the move fails, or if more than TransferTime or transferTries looks are needed. If the
// new judgement fails, bringUnits returns the error, and any attempt of the batch may have been admitted.
func (g *Gate) bringUnits(ctx context.Context, b *shardBatch) error {
	var short []int // indexes of the attempts that this shard refused as sold out
	for i, o := range b.answers {
		if o.Verdict == model.SoldOut {
			short = append(short, i)
		}
	}
	if b.err != nil || len(short) == 0 {
		return b.err
	}
	waiting, cancel := context.WithTimeout(ctx, g.TransferTime)
	defer cancel()
	mover := false
	for range transferTries {
		if len(short) == 0 {
			return nil
		}
		shards, _ := g.look(waiting, b.tags)
		gate := together(shards)
		if !gate.Open || gate.Epoch < b.least { // a gate that is Away is not Open
			break
		}
		if gate.sent != gate.received { // units are on their way, or lost
			pause.For(waiting, transferPause)
			continue
		}
		wanted := int64(0)
		for _, i := range short {
			if n := int64(b.attempts[i].Quantity); n <= gate.Left {
				wanted += n
			}
		}
		if wanted > 0 && !mover {
			lane := g.lanes[crc32.ChecksumIEEE([]byte(b.attempts[0].SaleID))%transferLanes]
			select {
			case lane <- struct{}{}:
				defer func() { <-lane }()
				mover = true
			case <-waiting.Done(): // the next look fails
			}
			continue // another attempt may have moved units meanwhile
		}
		if wanted > 0 && g.bring(ctx, b.tags, shards, b.home, wanted) != nil {
			break
		}
		// Attempts that want more units than are left are judged again, too: if the user has bought under another key meanwhile, the
		// refusal is limit_reached.
		if short = g.again(ctx, b, short); b.err != nil {
			return b.err
		}
		short = slices.DeleteFunc(short, func(i int) bool { return int64(b.attempts[i].Quantity) > gate.Left })
	}
	for _, i := range short {
		b.answers[i] = model.Admission{Outcome: model.Outcome{Verdict: model.Unsure}}
	}
	return nil
}

// again judges the attempts at these places once more, without counting the requests again. It returns the places of those that
// are still sold out. If the script fails, it stores the error in b.err.
func (g *Gate) again(ctx context.Context, b *shardBatch, places []int) (short []int) {
	retry := &shardBatch{tags: b.tags, home: b.home, least: b.least, attempts: make([]model.Attempt, len(places))}
	for at, i := range places {
		retry.attempts[at] = b.attempts[i]
		retry.attempts[at].Frequency = model.Frequency{}
	}
	g.judge(ctx, []*shardBatch{retry})
	if b.err = retry.err; b.err != nil {
		return nil
	}
	for at, i := range places {
		if b.answers[i] = retry.answers[at]; b.answers[i].Verdict == model.SoldOut {
			short = append(short, i)
		}
	}
	return short
}

// bring moves units from the other shards to one shard, whose place is "home", the fullest first, until enough were taken or no
// more are there. It goes on when ctx ends, since units that were taken and not given would be missing until the gate is replaced.
// If it can't take units from a shard, it returns the error after giving those that were taken before.
func (g *Gate) bring(ctx context.Context, tags []string, shards []shard, home int, wanted int64) error {
	ctx = context.WithoutCancel(ctx)
	epoch, missing, brought := shards[home].Epoch, wanted-shards[home].Left, int64(0)
	order := make([]int, 0, len(shards))
	for i, p := range shards {
		if i != home && p.Left > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(shards[b].Left, shards[a].Left) })
	var failed error
	for _, i := range order {
		if missing <= brought {
			break
		}
		var n int64
		if n, failed = g.transfer(ctx, transferOutScript, -1, tags[i], epoch, missing-brought); failed != nil {
			break
		}
		brought += n
	}
	if brought > 0 {
		_, err := g.transfer(ctx, transferInScript, 0, tags[home], epoch, brought)
		failed = errors.Join(failed, err)
	}
	return failed
}

// errClosed means that a script moved no units, for example because the shard is closed or of another epoch.
var errClosed = errors.New("a shard of the gate is closed")

// transfer runs transfer_out.lua or transfer_in.lua at a shard, for units that are wanted or given, and returns the answer. If
// this is "closed", transfer returns errClosed. After an error units may be missing until the gate is replaced.
func (g *Gate) transfer(ctx context.Context, script *redis.Script, closed int64, tag string, epoch, units int64) (moved int64, err error) {
	moved, err = script.Run(ctx, g.client, []string{gateKey(tag)}, epoch, units, g.instance, g.moves.Add(1)).Int64()
	if err == nil && moved == closed {
		err = errClosed
	}
	return moved, wrap("move units between shards", err)
}
