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
	// transferTime is the usual Gate.TransferTime, which includes the wait for earlier transfers. It is long enough for very many
	// round trips, and shorter than the time limit of a call of Admit.
	transferTime = 500 * time.Millisecond
	// transferTries bounds the looks at all shards for an attempt. Others may take units that were seen; units may be on their way.
	transferTries = 10
	// transferPause is a little longer than a move takes from transfer_out.lua to transfer_in.lua.
	transferPause = 5 * time.Millisecond
	// transferLanes bounds the transfers of an instance at one time. If two sales share a lane, one waits for the other.
	transferLanes = 64
)

// bringUnits is for a gate in several shards. If the shard of a batch has too few units for an attempt but all shards together
// have enough, bringUnits moves units to this shard and has the attempt judged again, so that an attempt is refused as sold out
// only after all shards were asked. If that fails, or needs more than TransferTime or transferTries tries, the verdict is
// model.Unsure. If bringUnits returns an error, the attempts of the batch may have been admitted.
func (g *Gate) bringUnits(ctx context.Context, b *shardBatch) error {
	var short []int // indexes of the attempts that were refused as sold out at this shard
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
		if gate.sent != gate.received { // units are on their way
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
			continue // look again: other attempts may have moved units meanwhile
		}
		if wanted > 0 && g.bring(ctx, b.tags, shards, b.home, wanted) != nil {
			break
		}
		// Attempts that want more units than are left are judged again too: if the same user has bought under another
		// key meanwhile, the right refusal is limit_reached, not sold_out.
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

// again judges the attempts at these places once more, without counting their requests a second time. It returns the places of
// those that are still refused as sold out. If the script fails, it stores the error in b.err.
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

// bring moves units from the other shards to the shard home, the fullest first, until home has as many as are wanted or no other
// shard has any. It goes on when ctx is cancelled: units that were taken and not yet given to home are in no shard, and would be
// missing until the gate is replaced. If a shard fails, home still gets what was taken before, and bring returns the error.
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

// errClosed means that a shard is missing, closed, of another epoch or of another Redis process.
var errClosed = errors.New("a shard of the gate is closed")

// transfer runs transfer_out.lua or transfer_in.lua at a shard, for units that are wanted or given, and returns the answer. If
// the answer is "closed", transfer returns errClosed. After any error units may be missing until the gate is replaced.
func (g *Gate) transfer(ctx context.Context, script *redis.Script, closed int64, tag string, epoch, units int64) (moved int64, err error) {
	moved, err = script.Run(ctx, g.client, []string{gateKey(tag)}, epoch, units, g.instance, g.moves.Add(1)).Int64()
	if err == nil && moved == closed {
		err = errClosed
	}
	return moved, wrap("move units between shards", err)
}
