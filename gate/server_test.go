package gate

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
)

// A gate that comes back from a disk or a replica may be older than what was sold since: it admits nobody until it is
// installed anew, although all its keys are there and its epoch is the newest.
func TestGateOfAnotherRedis(t *testing.T) {
	server := kit.Redis(t)
	opts, err := Options(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	g, o := New(client, "here"), offer()
	if err := install(g, 1, contents(o)); err != nil {
		t.Fatal(err)
	}
	state := func() model.GateState {
		t.Helper()
		states, err := g.Peek(t.Context(), o.ID)
		if err != nil {
			t.Fatal(err)
		}
		return states[0]
	}
	admitted := func(user string) model.Verdict {
		t.Helper()
		got, err := g.Admit(t.Context(), o.ID, []model.Attempt{attemptUnder(o, user, 1, "key")}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return got[0].Verdict
	}
	if got := admitted("u-1"); got != model.Accepted || !state().Open {
		t.Fatalf("the gate as installed: %s, %+v", got, state())
	}

	kept := map[string]string{}
	for _, key := range []string{gateKey(o.ID), unitsKey(o.ID), idsKey(o.ID)} {
		if kept[key], err = client.Dump(t.Context(), key).Result(); err != nil {
			t.Fatal(err)
		}
	}
	server.Restart()
	for key, value := range kept {
		if err := client.RestoreReplace(t.Context(), key, 0, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	before := state()
	if before.Open || !before.Exists || before.Epoch != 1 {
		t.Errorf("on another Redis the gate is %+v", before)
	}
	if got := admitted("u-2"); got != model.NoGate {
		t.Errorf("admitted by the gate of another Redis: %s", got)
	}
	if after := state(); after != before {
		t.Errorf("the gate went from %+v to %+v", before, after)
	}
	if err := install(g, 2, contents(o)); err != nil {
		t.Fatal(err)
	}
	if got := admitted("u-2"); got != model.Accepted || !state().Open {
		t.Errorf("after a new install: %s, %+v", got, state())
	}

	server.Kill()
	for range 3 { // whoever it is that doesn't answer is not guessed
		if got, err := admitOne(t.Context(), g, attemptUnder(o, "u-3", 1, "key"), 2); err == nil {
			t.Errorf("without Redis: %+v", got)
		}
	}
	if _, err := g.Peek(t.Context(), o.ID); err == nil || errors.Is(err, redis.Nil) {
		t.Errorf("a look without Redis: %v", err)
	}
}
