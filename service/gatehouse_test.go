package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
)

// gatehouse adds to fakeStores the steps of a rebuild, which it notes.
type gatehouse struct {
	*fakeStores
	failing string // the step that fails
	lost    bool   // another caller wins the epoch
	gone    bool   // the sale is erased before its contents are read
	newer   bool   // the present gate is newer than the new one
	moves   int    // how often the stream moves during an install
	steps   []string
	pause   time.Duration
	renewed chan int64                    // receives the renewed epochs, if not nil
	bad     []string                      // entries that can't be read
	changes map[string][]model.GateChange // by sale
}

func newGatehouse(offers ...model.Offer) *gatehouse {
	return &gatehouse{fakeStores: newFakeStores(offers...), changes: map[string][]model.GateChange{}}
}

// newGates returns a service of gates over a new gatehouse.
func newGates(t *testing.T, offers ...model.Offer) (*Gates, *gatehouse) {
	t.Helper()
	h := newGatehouse(offers...)
	return NewGates(h, h, refreshed(t, h), false, discard), h
}

// step notes a step, and fails if it is the failing one. The caller holds mu.
func (h *gatehouse) step(name string) error {
	h.steps = append(h.steps, name)
	if h.failing == name {
		return errAway
	}
	return nil
}

func (h *gatehouse) NextEpoch(_ context.Context, id string, seen, gates int64, pause time.Duration) (int64, bool, error) {
	defer h.locked()()
	h.pause = pause
	for i := range h.offers {
		if h.offers[i].ID == id && !h.lost {
			h.offers[i].Stock.Epoch = max(seen, gates) + 1
		}
	}
	return max(seen, gates) + 1, !h.lost, h.step("epoch")
}

func (h *gatehouse) RenewEpoch(ctx context.Context, _ string, epoch int64) error {
	if h.renewed == nil {
		return nil
	}
	select {
	case h.renewed <- epoch:
	case <-ctx.Done(): // the rebuild has ended
	}
	return nil
}

func (*gatehouse) CampaignSales(context.Context, string) ([]model.Offer, error) { return nil, nil }

func (h *gatehouse) GateContents(_ context.Context, id string) (model.GateContents, bool, error) {
	defer h.locked()()
	if err := h.step("contents"); err != nil {
		return nil, false, err
	}
	if h.gone {
		return nil, false, nil
	}
	i := slices.IndexFunc(h.offers, func(o model.Offer) bool { return o.ID == id })
	return openContents{kit.ContentsOf(h.offers[i]), h}, true, nil
}

// openContents must be closed, which is a step.
type openContents struct {
	kit.Contents
	h *gatehouse
}

func (c openContents) Close() {
	defer c.h.locked()()
	_ = c.h.step("end")
}

// record stores a change of a sale for its gate.
func (h *gatehouse) record(id string, version int64) {
	for i := range h.offers {
		if h.offers[i].ID == id {
			h.offers[i].Stock.GateVersion = version
		}
	}
	h.changes[id] = append(h.changes[id], model.GateChange{Version: version, Units: 1})
}

// GateChanges returns one change at a time.
func (h *gatehouse) GateChanges(_ context.Context, id string, after int64, _ int) ([]model.GateChange, int64, bool, error) {
	defer h.locked()()
	rest := slices.DeleteFunc(slices.Clone(h.changes[id]), func(c model.GateChange) bool { return c.Version <= after })
	if len(rest) == 0 {
		return nil, after, false, nil
	}
	return rest[:1], rest[0].Version, len(rest) > 1, h.step("changes")
}

func (h *gatehouse) ForgetGateChanges(_ context.Context, id string, upTo int64) error {
	defer h.locked()()
	h.changes[id] = slices.DeleteFunc(h.changes[id], func(c model.GateChange) bool { return c.Version <= upTo })
	return h.step(fmt.Sprint("forget ", upTo))
}

func (h *gatehouse) CatchUp(_ context.Context, gate model.GateRef, after, upTo int64, changes []model.GateChange) error {
	defer h.locked()()
	state := h.states[gate.SaleID]
	for _, c := range changes {
		state.Left += c.Units
	}
	state.Version = upTo
	h.states[gate.SaleID] = state
	return h.step(fmt.Sprintf("tell %d to %d", after, upTo))
}

func (h *gatehouse) Log(_ context.Context, actor, action, subject, detail string) error {
	defer h.locked()()
	return h.step(strings.Join([]string{"log", actor, action, subject, detail}, " "))
}

func (h *gatehouse) Peek(ctx context.Context, gates ...model.GateRef) ([]model.GateState, error) {
	if h.failing == "peek" {
		return nil, errAway
	}
	return h.fakeStores.Peek(ctx, gates...)
}

func (h *gatehouse) Close(_ context.Context, _ model.GateRef, epoch int64) (bool, error) {
	defer h.locked()()
	return !h.newer, h.step(fmt.Sprint("close for ", epoch))
}

func (h *gatehouse) StreamLengths(context.Context, model.GateRef) ([]int64, error) {
	defer h.locked()()
	return []int64{7}, h.step("measure")
}

func (h *gatehouse) Install(_ context.Context, epoch int64, lengths []int64, c model.GateContents) (bad []string, err error) {
	defer h.locked()()
	h.bad, bad = nil, h.bad
	switch {
	case h.moves > 0:
		h.moves--
		_ = h.step("moved")
		return bad, model.ErrStreamMoved
	case h.newer:
		return bad, model.ErrNewerGate
	case !slices.Equal(lengths, []int64{7}):
		return bad, fmt.Errorf("the stream had %v entries", lengths)
	}
	o := c.Offer()
	h.states[o.ID] = model.GateState{Exists: true, Open: true, Epoch: epoch, Revision: o.Revision, Version: o.Stock.Version}
	return bad, h.step(fmt.Sprint("install ", epoch))
}

func (*gatehouse) Count(context.Context, model.GateRef, string, model.Frequency) (retryAfter time.Duration, ok bool, err error) {
	return 0, true, nil
}
