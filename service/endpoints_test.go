package service

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/internal/webhook"
	"flashsale/model"
	"flashsale/service/auth"
	"flashsale/test/kit/check"
)

// fakeEndpoint is a database with one endpoint and a feed of some events.
type fakeEndpoint struct {
	EndpointStore
	endpoint  model.Endpoint
	feed      int64
	long      int   // bytes that each event has more
	huge      int64 // the number of one that has 100 times as many
	forgotten int64
	pause     time.Duration
	notes     []model.Delivery
}

func (f *fakeEndpoint) TakeEndpoint(context.Context, string, time.Duration) (model.Endpoint, bool, error) {
	return f.endpoint, f.endpoint.State == model.EndpointOn, nil
}

func (f *fakeEndpoint) Events(_ context.Context, after int64, limit int) (list []model.Event, err error) {
	for n := max(after, f.forgotten) + 1; n <= f.feed && len(list) < limit; n++ {
		length := f.long
		if n == f.huge {
			length *= 100
		}
		list = append(list, model.Event{Number: n, Type: model.EventSaleOpened, SaleID: "S" + strings.Repeat("x", length)})
	}
	return list, nil
}

func (f *fakeEndpoint) FreeEndpoint(ctx context.Context, id string) error {
	return f.SendTo(ctx, id, 0)
}

func (f *fakeEndpoint) SendTo(_ context.Context, _ string, last int64) error {
	f.endpoint.SendingTo = last
	return nil
}

func (f *fakeEndpoint) FinishDelivery(_ context.Context, d model.Delivery, pause time.Duration, state model.EndpointState, reason string) error {
	f.notes, f.pause = append(f.notes, d), pause
	f.endpoint.State, f.endpoint.Reason = state, reason
	if d.Delivered() || d.Undeliverable() {
		f.endpoint.Position, f.endpoint.SendingTo, f.endpoint.Tries, f.endpoint.FailingSince = d.Last, 0, 0, time.Time{}
	} else if f.endpoint.Tries++; f.endpoint.FailingSince.IsZero() {
		f.endpoint.FailingSince = d.At
	}
	return nil
}

// sender notes messages and gives each the same answer.
type sender struct {
	status  int
	most    int // longer messages are refused with 413; 0: none
	ids     []string
	bodies  []string
	secrets [][]string
}

func (s *sender) Send(_ context.Context, _ string, secrets []string, id string, body []byte) (int, string) {
	s.ids, s.bodies, s.secrets = append(s.ids, id), append(s.bodies, string(body)), append(s.secrets, secrets)
	if s.most > 0 && len(body) > s.most {
		return 413, "too large"
	}
	return s.status, "answer"
}

// newEndpoints returns a service over an endpoint of a thousand events a second, and the time.
func newEndpoints(t *testing.T) (e *Endpoints, f *fakeEndpoint, s *sender, now *time.Time) {
	t.Helper()
	seals := auth.NewSeals([]byte("a secret of at least 32 bytes...."))
	at := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	f, s, now = &fakeEndpoint{endpoint: model.Endpoint{ID: "E", Rate: 1000, State: model.EndpointOn, Secret: seals.Seal(webhook.NewSecret())}}, &sender{status: 200}, &at
	return &Endpoints{Store: f, Sender: s, Seals: seals, Now: func() time.Time { return *now }, Log: slog.New(slog.DiscardHandler)}, f, s, now
}

// A rush comes in messages of 500, at the endpoint's rate.
func TestDeliverInBatches(t *testing.T) {
	e, f, s, _ := newEndpoints(t)
	f.feed = 1200
	var more bool
	for i, want := range []time.Duration{500 * time.Millisecond, 500 * time.Millisecond, 200 * time.Millisecond} {
		var pause time.Duration
		var err error
		pause, more, err = e.Deliver(t.Context(), "E")
		check.Same(t, "pause, more, error", []any{pause, more, err}, []any{want, i < 2, nil})
	}
	check.Same(t, "ids", s.ids, []string{"msg_E_1-500", "msg_E_501-1000", "msg_E_1001-1200"})
	var message struct {
		Type string
		Data struct{ Events []EventView }
	}
	check.NoError(t, json.Unmarshal([]byte(s.bodies[0]), &message))
	check.Same(t, "message", []any{message.Type, len(message.Data.Events), message.Data.Events[499].ID}, []any{"events", 500, "500"})
}

// Messages are no longer than 64 KiB. If an endpoint refuses one for its size, the next ones are half as long; the one event that it
// never takes is passed over, and the others come.
func TestHole73_TooLargeMessages(t *testing.T) {
	e, f, s, _ := newEndpoints(t)
	f.feed, f.long = 1000, 300
	deliver := func() (tries int) {
		for more := true; more; tries++ {
			var err error
			_, more, err = e.Deliver(t.Context(), "E")
			check.NoError(t, err)
		}
		return tries
	}
	deliver()
	check.Same(t, "position", f.endpoint.Position, int64(1000))
	for _, body := range s.bodies {
		if len(body) > messageBytes {
			t.Errorf("a message has %d bytes", len(body))
		}
	}
	f.feed, s.most = 2000, 20_000
	refused := func() (n int) {
		for _, d := range f.notes {
			if d.Status == 413 {
				n++
			}
		}
		return n
	}
	deliver()
	check.Same(t, "position", f.endpoint.Position, int64(2000))
	if n := refused(); n == 0 || n > 4 {
		t.Errorf("%d messages were refused until one was short enough", n)
	}
	before := refused()
	f.feed, f.huge = 2010, 2005
	deliver()
	check.Same(t, "position, state", []any{f.endpoint.Position, f.endpoint.State}, []any{int64(2010), model.EndpointOn})
	var passed []int64
	for _, d := range f.notes {
		if d.Undeliverable() {
			passed = append(passed, d.First)
		}
	}
	check.Same(t, "events that were passed over", passed, []int64{2005})
	if n := refused() - before; n > 6 {
		t.Errorf("%d messages were refused for one event", n)
	}
}

// A message that fails comes again as it was, although the feed has grown, after pauses that grow to half an hour. After a
// day the endpoint is switched off.
func TestDeliverAgain(t *testing.T) {
	e, f, s, now := newEndpoints(t)
	f.feed, s.status = 3, 503
	started := *now
	for f.endpoint.State == model.EndpointOn {
		if _, more, err := e.Deliver(t.Context(), "E"); more || err != nil {
			t.Fatalf("more %t, %v", more, err)
		}
		f.feed += 100
		*now = now.Add(f.pause)
		if least, most := firstPause/2, lastPause*3/2; f.endpoint.State == model.EndpointOn && (f.pause < least || f.pause > most) {
			t.Errorf("the pause after try %d is %s", f.endpoint.Tries, f.pause)
		}
	}
	check.Same(t, "ids", slices.Compact(s.ids), []string{"msg_E_1-3"})
	check.Same(t, "bodies", len(slices.Compact(s.bodies)), 1)
	check.Same(t, "state", f.endpoint.State, model.EndpointOff)
	if tried := now.Sub(started); tried < giveUp || tried > giveUp+2*lastPause || len(s.ids) < 40 {
		t.Errorf("%d tries in %s", len(s.ids), tried)
	}
	f.endpoint.State, s.status, f.forgotten = model.EndpointOn, 200, 1
	_, _, err := e.Deliver(t.Context(), "E")
	check.NoError(t, err)
	check.Same(t, "switched on, it goes on with what is still kept of the message", s.ids[len(s.ids)-1], "msg_E_2-3")
}

// 410 ends an endpoint at once.
func TestDeliverToNobody(t *testing.T) {
	e, f, s, _ := newEndpoints(t)
	f.feed, s.status = 1, 410
	_, _, err := e.Deliver(t.Context(), "E")
	check.Same(t, "state", []any{f.endpoint.State, err}, []any{model.EndpointGone, nil})
}

// The secret before signs as well until its end. A secret that was sealed with another key can't be opened, and nothing is
// sent.
func TestSecretsOfEndpoints(t *testing.T) {
	e, f, s, now := newEndpoints(t)
	f.feed = 10
	old := webhook.NewSecret()
	f.endpoint.OldSecret, f.endpoint.OldUntil = e.Seals.Seal(old), now.Add(time.Hour)
	deliver := func() {
		t.Helper()
		_, _, err := e.Deliver(t.Context(), "E")
		check.NoError(t, err)
		f.endpoint.Position = 0
	}
	deliver()
	if last := s.secrets[0]; len(last) != 2 || last[1] != old {
		t.Errorf("signed with %d secrets", len(last))
	}
	*now = now.Add(time.Hour)
	deliver()
	check.Same(t, "secrets after an hour", len(s.secrets[1]), 1)
	f.endpoint.Secret = auth.NewSeals([]byte("another secret of 32 bytes.......")).Seal(old)
	deliver()
	check.Same(t, "messages with a secret that can't be opened", len(s.ids), 2)
	if note := f.notes[2]; note.Delivered() || !strings.Contains(note.Answer, "needs a new secret") {
		t.Errorf("the delivery is %+v", note)
	}
}
