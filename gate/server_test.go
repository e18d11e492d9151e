package gate

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// TestGateOfAnotherRedis copies a gate to another Redis process, like a restart from disk or a failover to a replica. The
// copy may be older than the last sales. So it admits nothing until it is installed again, on any connection.
func TestGateOfAnotherRedis(t *testing.T) {
	server := kit.Redis(t)
	b := newBench(t, server.URL())
	for _, o := range []model.Offer{offer(), offerIn(2)} {
		b.open(o)
		b.admit(attempt(o, "u-1", 1))
		kept := map[string]string{}
		for _, key := range b.keys("*") {
			kept[key] = must(b, b.client.Dump(t.Context(), key))
		}
		server.Restart()
		for key, value := range kept {
			must(b, b.client.RestoreReplace(t.Context(), key, 0, value))
		}
		b.want(o, model.GateState{Exists: true, Epoch: 1, Left: 9, Inflight: 1, Stream: 1})
		b.unchanged(func() {
			for _, instance := range []*bench{b, b.as("here"), b.as("there")} {
				check.Same(t, "the verdict of the gate of another Redis", instance.judge(attempt(o, "u-2", 1), 1).Verdict, model.NoGate)
			}
			if _, err := b.gate.transfer(t.Context(), transferOutScript, -1, tagsOf(o.GateRef())[0], 1, 1); !errors.Is(err, errClosed) {
				t.Errorf("the gate of another Redis lends: %v", err)
			}
		})
		b.install(2, kit.ContentsOf(o))
		b.admit(attempt(o, "u-2", 1))
	}
}

// TestRedisWithoutInfo: if a Redis user may not run INFO, gates on that Redis are trusted.
func TestRedisWithoutInfo(t *testing.T) {
	server := kit.Redis(t)
	operator := newBench(t, server.URL())
	must(operator, operator.client.Do(t.Context(), "ACL", "SETUSER", "shop", "on", ">word", "~*", "&*", "+@all", "-info"))
	b := newBench(t, "redis://shop:word@"+server.Addr()+"/0")
	for _, o := range []model.Offer{b.sale(), b.open(offerIn(2))} {
		b.admit(attempt(o, "u-1", 1))
		b.want(o, model.GateState{Exists: true, Open: true, Epoch: 1, Left: 9, Inflight: 1, Stream: 1})
	}
}

// TestVersion: the version is that of INFO. The embedded Redis has none, which is an error: nobody asks it.
func TestVersion(t *testing.T) {
	eachRedis(t, func(b *bench) {
		got, err := b.gate.Version(b.Context())
		info, unsupported := b.client.Info(b.Context(), "server").Result()
		good := got == ""
		if unsupported == nil {
			good = regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(got) && strings.Contains(info, "redis_version:"+got+"\r\n")
		}
		if (err == nil) != (unsupported == nil) || !good {
			b.Errorf("%q, %v, and INFO says %q", got, err, info)
		}
	})
}
