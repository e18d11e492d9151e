package app_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit/check"
)

// event is one server-sent event.
type event struct{ id, name, data string }

// stream receives server-sent events.
type stream struct {
	t      testing.TB
	header http.Header
	events chan event // closed when the stream ends
}

// listen follows a stream of events until the test ends.
func (c *client) listen(path string, headers ...string) *stream {
	c.t.Helper()
	req, err := c.request(c.t.Context(), "GET", path, nil, headers...)
	check.NoError(c.t, err)
	// Streams have a client of their own, since they have no time limit.
	connection := &http.Transport{}
	c.t.Cleanup(connection.CloseIdleConnections)
	res, err := inspect(c.t, c.url, connection).RoundTrip(req)
	check.NoError(c.t, err)
	c.t.Cleanup(func() { _ = res.Body.Close() })
	if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || got != "text/event-stream" {
		c.t.Fatalf("%s: %d %s", path, res.StatusCode, got)
	}
	s := &stream{t: c.t, header: res.Header, events: make(chan event, 1000)}
	go func() {
		defer close(s.events)
		e, lines := event{}, bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				e.data = value
				s.events <- e
			}
		}
	}()
	return s
}

// next waits for the stream's next event.
func (s *stream) next() event {
	s.t.Helper()
	e := check.Receive(s.t, "an event", s.events)
	if e == (event{}) {
		s.t.Fatal("the stream ended")
	}
	return e
}

// hear waits for the next event and decodes its data.
func hear[T any](s *stream) (data T) {
	s.t.Helper()
	e := s.next()
	if err := json.Unmarshal([]byte(e.data), &data); err != nil {
		s.t.Fatalf("%v in the event %+v", err, e)
	}
	return data
}

// hearUntil waits for an event whose data is accepted.
func hearUntil[T any](s *stream, what string, ok func(T) bool) T {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		data := hear[T](s)
		if ok(data) {
			return data
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("not within %v: %s; the last event: %+v", patience, what, data)
		}
	}
}

// ended waits for the end of the stream.
func (s *stream) ended() {
	s.t.Helper()
	check.Eventually(s.t, "the stream ends", func() bool { // also bounds a stream whose events never stop
		select {
		case _, open := <-s.events:
			return !open
		default:
			return false
		}
	})
}

// stockEvent is an event of a sale's stream.
type stockEvent struct {
	Available int64     `json:"available"`
	Quota     int64     `json:"quota"`
	State     string    `json:"state"`
	Now       time.Time `json:"now"`
}

// events follows a sale's stream.
func (s *server) events(saleID string, headers ...string) *stream {
	s.t.Helper()
	return s.anyone().listen("/api/v1/sales/"+saleID+"/events", headers...)
}
