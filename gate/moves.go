package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync/atomic"
	"time"

	"flashsale/model"
)

const (
	// moveTime is how long an attempt waits for units of other parts, others' moves before it included: very many round
	// trips, and a part of the time that a call has.
	moveTime = 500 * time.Millisecond
	// moveTries is how often all parts are looked at for an attempt: others may be quicker, or have units on their way.
	moveTries = 10
	// movePause is a little longer than units are on their way.
	movePause = 5 * time.Millisecond
	// moveLanes bounds the moves at one time. Two sales in one lane only wait for each other.
	moveLanes = 64
)

// moves sees to it that an instance moves units of a sale one time after the other: who waits finds them arrived.
type moves struct {
	lanes  [moveLanes]chan struct{}
	number atomic.Int64 // of the last one
}

func newMoves() *moves {
	m := &moves{}
	for i := range m.lanes {
		m.lanes[i] = make(chan struct{}, 1)
	}
	return m
}

// lane is held by whoever moves units of a sale.
func (m *moves) lane(saleID string) chan struct{} {
	return m.lanes[crc32.ChecksumIEEE([]byte(saleID))%moveLanes]
}

// admitAt judges attempts at the home of their users. What the part has too few units for is judged again after it got
// some from the others: nobody hears that the sale is sold out before all parts were asked.
func (g *Gate) admitAt(ctx context.Context, tags []string, home int, attempts []model.Attempt, epoch int64) ([]model.Outcome, error) {
	outcomes, err := g.admit(ctx, tags[home], attempts, epoch)
	if err != nil {
		return nil, err
	}
	var short []int // places of those that may have to be told
	for i, o := range outcomes {
		if o.Verdict == model.SoldOut {
			short = append(short, i)
		}
	}
	waiting, cancel := context.WithTimeout(ctx, moveTime)
	defer cancel()
	mover := false
	for range moveTries {
		if len(short) == 0 {
			return outcomes, nil
		}
		parts, _ := looker{client: g.client}.look(waiting, tags)
		if gate := together(parts); !gate.Open || gate.Epoch < epoch { // or Away
			break
		}
		left, underWay := int64(0), int64(0)
		for _, p := range parts {
			left, underWay = left+p.Left, underWay+p.lent-p.borrowed
		}
		if underWay != 0 {
			pause(waiting, movePause)
			continue
		}
		wanted := int64(0)
		for _, i := range short {
			if n := int64(attempts[i].Quantity); n <= left {
				wanted += n
			}
		}
		if wanted > 0 && !mover {
			lane := g.moves.lane(attempts[0].SaleID)
			select {
			case lane <- struct{}{}:
				defer func() { <-lane }()
				mover = true
				continue // with what others have brought meanwhile
			case <-waiting.Done():
				return unsure(outcomes, short), nil
			}
		}
		if wanted > 0 && g.bring(ctx, tags, parts, home, wanted) != nil {
			break
		}
		// Also those who want more than there is: a moment ago they may have got it under another key.
		if short, err = g.again(ctx, tags[home], attempts, short, epoch, outcomes); err != nil {
			return nil, err
		}
		short = slices.DeleteFunc(short, func(i int) bool { return int64(attempts[i].Quantity) > left })
	}
	return unsure(outcomes, short), nil
}

// unsure says of the attempts at some places that nobody knows.
func unsure(outcomes []model.Outcome, places []int) []model.Outcome {
	for _, i := range places {
		outcomes[i] = model.Outcome{Verdict: model.Unsure}
	}
	return outcomes
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// again judges the attempts at some places once more, whose requests are counted, and gives the places of those that are
// still short.
func (g *Gate) again(ctx context.Context, tag string, attempts []model.Attempt, places []int, epoch int64, outcomes []model.Outcome) (short []int, err error) {
	list := make([]model.Attempt, len(places))
	for at, i := range places {
		list[at] = attempts[i]
		list[at].Frequency = model.Frequency{}
	}
	judged, err := g.admit(ctx, tag, list, epoch)
	if err != nil {
		return nil, err
	}
	for at, i := range places {
		if outcomes[i] = judged[at]; judged[at].Verdict == model.SoldOut {
			short = append(short, i)
		}
	}
	return short, nil
}

// bring brings units to a part from the others, those first that have the most, until it has as many as are wanted or no
// other has any. It gives up between two steps only, not in one: units that were taken from a part and are not yet given
// are in none, and would be missing until the gate is replaced.
func (g *Gate) bring(ctx context.Context, tags []string, parts []part, home int, wanted int64) error {
	ctx = context.WithoutCancel(ctx)
	epoch, missing, brought := parts[home].Epoch, wanted-parts[home].Left, int64(0)
	order := make([]int, 0, len(parts))
	for i, p := range parts {
		if i != home && p.Left > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(parts[b].Left, parts[a].Left) })
	var failed error
	for _, i := range order {
		if missing <= brought {
			break
		}
		var n int64
		if n, failed = g.lend(ctx, tags[i], epoch, missing-brought); failed != nil {
			break
		}
		brought += n
	}
	if brought > 0 {
		failed = errors.Join(failed, g.borrow(ctx, tags[home], epoch, brought))
	}
	return failed
}

// errClosed: a part is closed, or of another epoch.
var errClosed = errors.New("a part of the gate is closed")

// lend takes units out of a part. If the call fails, they may be missing until the gate is replaced.
func (g *Gate) lend(ctx context.Context, tag string, epoch, wanted int64) (taken int64, err error) {
	taken, err = lendScript.Run(ctx, g.client, []string{gateKey(tag)}, epoch, wanted, g.instance, g.moves.number.Add(1)).Int64()
	if err == nil && taken < 0 {
		err = errClosed
	}
	if err != nil {
		return 0, fmt.Errorf("take units out of a part: %w", err)
	}
	return taken, nil
}

// borrow gives a part units that were taken out of others.
func (g *Gate) borrow(ctx context.Context, tag string, epoch, n int64) error {
	given, err := borrowScript.Run(ctx, g.client, []string{gateKey(tag)}, epoch, n, g.instance, g.moves.number.Add(1)).Bool()
	if err == nil && !given {
		err = errClosed
	}
	if err != nil {
		return fmt.Errorf("give units to a part: %w", err)
	}
	return nil
}
