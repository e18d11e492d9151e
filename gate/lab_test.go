package gate

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"flashsale/internal/embedded"
	"flashsale/model"
	"flashsale/test/kit"
)

// busy is an open gate with something under each of its keys.
func (b *bench) busy() model.Offer {
	b.Helper()
	o := b.open(offer())
	b.admit(attempt(o, "buyer", 1))
	b.admit(attempt(o, "other", 2))
	entries := b.read(b.gate, o.ID)
	b.settled(o, entries[:1], model.Outcome{Verdict: model.Accepted, Order: &model.Order{ID: entries[0].ID}})
	b.told(o, model.GateChange{Version: o.Stock.Version + 1, OrderID: entries[0].ID, UserID: "buyer", Units: 1})
	for _, key := range []string{gateKey(o.ID), unitsKey(o.ID), idsKey(o.ID), streamKey(o.ID)} {
		if must(b, b.client.Exists(b.Context(), key)) != 1 {
			b.Fatalf("nothing under %s", key)
		}
	}
	return o
}

// TestErase: an erased gate is as if it had never been, and no other one is touched.
func TestErase(t *testing.T) {
	eachRedis(t, func(b *bench) {
		kept := b.busy()
		state, before := b.peek(kept.ID), b.dump()
		o := b.busy()
		if b.dump() == before {
			b.Fatal("the test sees no keys")
		}
		for range 2 { // once more is harmless
			if err := b.gate.Erase(b.Context(), o.ID); err != nil {
				b.Fatal(err)
			}
			if after := b.dump(); after != before {
				b.Errorf("there was\n%sand is\n%s", before, after)
			}
		}
		for _, key := range must(b, b.client.Keys(b.Context(), "*")) {
			if strings.Contains(key, o.ID) {
				b.Errorf("%s is left", key)
			}
		}
		b.want(o, model.GateState{})
		b.want(kept, state)
		if got, err := admitOne(b.Context(), b.gate, attempt(o, "late", 1), 0); !errors.Is(err, model.ErrNoGate) {
			b.Errorf("an attempt at it: %+v, %v", got, err)
		}
		if entries := b.read(b.gate, o.ID); len(entries) != 0 {
			b.Errorf("the stream still has %v", entries)
		}
		b.admit(attempt(kept, "late", 1))

		b.open(o) // it knows nothing of the one before
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 10})
		b.admit(attempt(o, "buyer", 2))
	})
}

// TestVersion is the server's own word; the embedded one has none.
func TestVersion(t *testing.T) {
	eachRedis(t, func(b *bench) {
		got, err := b.gate.Version(b.Context())
		info, unknown := b.client.Info(b.Context(), "server").Result()
		switch {
		case unknown != nil:
			if err != nil || got != "" {
				b.Errorf("%q, %v, and INFO says %v", got, err, unknown)
			}
		case err != nil || !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(got) || !strings.Contains(info, "redis_version:"+got+"\r\n"):
			b.Errorf("%q, %v, and INFO says %q", got, err, info)
		}
	})
}

// TestNothingOfADeadRedis is told as if it had answered.
func TestNothingOfADeadRedis(t *testing.T) {
	for name, dead := range map[string]func(t *testing.T) *bench{
		"embedded": func(t *testing.T) *bench {
			server, err := embedded.StartRedis()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			return newBench(t, server.URL())
		},
		"redis-server": func(t *testing.T) *bench {
			server := kit.Redis(t)
			defer server.Kill()
			return newBench(t, server.URL())
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := dead(t)
			if got, err := b.gate.Version(t.Context()); err == nil || got != "" {
				t.Errorf("its version: %q, %v", got, err)
			}
			if err := b.gate.Erase(t.Context(), model.NewSaleID()); err == nil {
				t.Error("it erased a gate")
			}
		})
	}
}
