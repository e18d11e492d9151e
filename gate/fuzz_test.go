package gate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// FuzzEntry: an accepted entry can be settled, and it is read as the same entry when it is written again.
func FuzzEntry(f *testing.F) {
	const sale = "AAAAAAAAAAAAAAAA"
	id := ids.Derive("u-1", sale, "key")
	f.Add(id, "u-1", "1", "7", "here", "key")
	f.Add(id, "u-1", "2", "7", "here", "a key with spaces")
	f.Add(id, "u-1", "-5", "7", "here", "key")
	f.Add(id, "u-1", "0", "7", "here", "key")
	f.Add(id, "u-1", "9223372036854775808", "7", "here", "key")
	f.Add(id, "u-1", "1.5", "7", "here", "key")
	f.Add(id, "u-1", "+1", "x", "here", "key")
	f.Add(id[:47], "u-1", "1", "7", "here", "key")
	f.Add(strings.ToLower(id), "u-1", "1", "7", "here", "key")
	f.Add(id, "u\n1", "1", "7", "here", "key")
	f.Add(id, "", "1", "7", "", "")
	f.Fuzz(func(t *testing.T, id, user, n, epoch, instance, key string) {
		parsed := func(text string) (model.Entry, bool) {
			return parseEntry(model.GateRef{SaleID: sale, Shards: 1}, redis.XMessage{ID: "1-1", Values: map[string]any{"attempt": text}})
		}
		text := strings.Join([]string{id, user, n, epoch, instance, key}, " ")
		e, ok := parsed(text)
		if !ok {
			return
		}
		if e.Quantity < 1 || model.SaleOf(e.ID) != sale || e.SaleID != sale || !model.ValidUserID(e.UserID) || e.IdempotencyKey == "" {
			t.Errorf("%q was read as %+v", text, e)
		}
		again := fmt.Sprintf("%s %s %d %d %s %s", e.ID, e.UserID, e.Quantity, e.Epoch, e.Instance, e.IdempotencyKey)
		if same, ok := parsed(again); !ok || same != e {
			t.Errorf("%+v, written again, is read as %+v, %t", e, same, ok)
		}
	})
}

// FuzzShards plays the same story to a gate in one shard and to a gate in several: their answers and states are equal.
func FuzzShards(f *testing.F) {
	f.Add(uint8(6), []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"))
	f.Add(uint8(2), []byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbb"))
	f.Add(uint8(16), []byte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	f.Add(uint8(3), bytes.Repeat([]byte("\xff\xfe\x80\x81\xc0\xc1\xe0\xe1\x10\x90\x20\xa0\x30\xb0"), 2))
	server := kit.Redis(f)
	f.Fuzz(func(t *testing.T, shards uint8, steps []byte) {
		b := newBench(t, server.URL())
		one, several := newStory(b, offer()), newStory(b, offerIn(2+int(shards)%(model.MaxShards-1)))
		compare(t, one, several, steps[:min(len(steps), 60)])
		_ = b.gate.Erase(t.Context(), one.offer.GateRef())
		_ = b.gate.Erase(t.Context(), several.offer.GateRef())
	})
}

// compare plays the same steps to two gates and fails the test at the first difference.
func compare(t *testing.T, x, y *story, steps []byte) {
	t.Helper()
	for i, step := range steps {
		answerX, answerY := x.play(step), y.play(step)
		if stateX, stateY := x.peek(x.offer), y.peek(y.offer); answerX != answerY || stateX != stateY {
			t.Fatalf("step %d (%#x): one gate says %s and is %+v, the other says %s and is %+v", i, step, answerX, stateX, answerY, stateY)
		}
	}
	check.Same(t, "the units of users", x.units(x.offer), y.units(y.offer))
	check.Same(t, "the units that the gates then sell", x.sellOut(), y.sellOut())
}

// story plays steps to one gate.
type story struct {
	*bench
	offer    model.Offer
	version  int64 // of the stock
	epoch    int64
	admitted []model.Attempt // in the stream
	orders   []model.Attempt // settled, and not released
	attempts int
}

func newStory(b *bench, o model.Offer) *story {
	o.LimitPerUser = 3
	return &story{bench: b, offer: b.open(o), version: o.Stock.Version, epoch: 1}
}

// play does a step. The lowest three bits choose the action, the others the user or the entry.
func (s *story) play(step byte) string {
	s.Helper()
	who := int(step >> 3)
	switch step % 8 {
	case 5:
		return s.settleOne(accepted, who)
	case 6:
		if who%4 == 0 {
			return s.rebuild()
		}
		return s.settleOne([]model.Outcome{soldOut, limitReached}[who%2], who)
	case 7:
		return s.release(who)
	}
	s.attempts++
	a := attemptUnder(s.offer, fmt.Sprint("u-", who), 1+int(step%4), fmt.Sprint("key-", s.attempts))
	got := s.verdict(a)
	if got == model.Accepted {
		s.admitted = append(s.admitted, a)
	}
	return string(got)
}

// draw removes an attempt from a list and returns it.
func draw(from *[]model.Attempt, which int) model.Attempt {
	which %= len(*from)
	a := (*from)[which]
	*from = slices.Delete(*from, which, which+1)
	return a
}

func (s *story) settleOne(outcome model.Outcome, which int) string {
	s.Helper()
	if len(s.admitted) == 0 {
		return "nothing to settle"
	}
	a, entries := draw(&s.admitted, which), s.entries(s.offer)
	at := slices.IndexFunc(entries, func(e model.Entry) bool { return e.ID == a.ID })
	if at < 0 {
		s.Fatalf("the entry of %s is missing", a.UserID)
	}
	s.settle(entries[at:at+1], outcome)
	if outcome == accepted {
		s.version++
		s.orders = append(s.orders, a)
	}
	return "settled"
}

func (s *story) release(which int) string {
	s.Helper()
	if len(s.orders) == 0 {
		return "nothing to release"
	}
	a := draw(&s.orders, which)
	s.version++
	s.catchUp(s.offer, model.GateChange{Version: s.version, OrderID: a.ID, UserID: a.UserID, Units: int64(a.Quantity)})
	return "released"
}

// rebuild installs the next gate with what a database would contain.
func (s *story) rebuild() string {
	s.Helper()
	s.epoch++
	check.Same(s, "closed", s.close(s.offer, s.epoch), true)
	c := kit.ContentsOf(s.offer)
	c.Of.Stock.Version = s.version
	for _, a := range s.orders {
		c.Of.Stock.Available -= int64(a.Quantity)
		c.Units[a.UserID] += a.Quantity
		c.Quantities[a.ID], c.Owners[a.ID] = a.Quantity, a.UserID
	}
	s.install(s.epoch, c)
	return "rebuilt"
}

// sellOut sells single units to new users until none is left.
func (s *story) sellOut() (sold int) {
	s.Helper()
	for {
		switch got := s.verdict(attempt(s.offer, fmt.Sprint("new-", sold), 1)); got {
		case model.Accepted:
			sold++
		case model.SoldOut:
			return sold
		default:
			s.Fatalf("%d sold, then %s", sold, got)
		}
	}
}
