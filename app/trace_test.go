package app_test

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"flashsale/internal/config"
	"flashsale/test/kit/pace"
)

// collector receives spans as an OpenTelemetry collector does.
type collector struct {
	url   string
	mu    sync.Mutex
	spans []*tracepb.Span
	bytes []byte // all that was sent
}

func newCollector(t testing.TB) *collector {
	t.Helper()
	c := &collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collectorpb.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
			t.Errorf("%s with %d bytes, %v", r.URL.Path, len(body), err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bytes = append(c.bytes, body...)
		for _, resource := range request.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// named returns the spans of a name.
func (c *collector) named(name string) (found []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range c.spans {
		if span.GetName() == name {
			found = append(found, span)
		}
	}
	return found
}

// calls checks that spans of these names have this parent.
func (c *collector) calls(t testing.TB, parent *tracepb.Span, names ...string) {
	t.Helper()
	for _, name := range names {
		if !slices.ContainsFunc(c.named(name), func(s *tracepb.Span) bool {
			return bytes.Equal(s.GetParentSpanId(),
				parent.GetSpanId())
		}) {
			pace.Errorf(t, "%s has no span %s", parent.GetName(), name)
		}
	}
}

func linked(from, to *tracepb.Span) bool {
	return slices.ContainsFunc(from.GetLinks(), func(l *tracepb.Span_Link) bool {
		return bytes.Equal(l.GetSpanId(), to.GetSpanId()) && bytes.Equal(l.GetTraceId(), to.GetTraceId())
	})
}

// A purchase is one trace, from the request through gate and settle to Redis and the database.
func TestTraceOfAPurchase(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		to := newCollector(t)
		s := start(t, func(c *config.Settings) { c.OTLPEndpoint, c.TraceRatio = to.url, 1 })
		saleID := s.createSale(nil).ID
		buyer := s.buyer("ann-whom-nobody-may-know")
		path := buyer.path(saleID)
		buyer.call("POST", "/api/v1/sales/"+saleID+"/"+path+"/orders", fields{"quantity": 1}).want(201)
		s.stop() // which sends the rest

		only := func(name string) *tracepb.Span {
			t.Helper()
			found := to.named(name)
			if len(found) != 1 { // the stop gives up spans that are not sent in time, and what is tried again has two
				t.FatalSlowf("%d spans are named %q", len(found), name)
			}
			return found[0]
		}
		request, deduct, admit, settle := only("POST /api/v1/sales/:sale/:path/orders"), only("deduct"), only("admit"), only("settle")
		for _, span := range []*tracepb.Span{deduct, admit, settle} {
			if !bytes.Equal(span.GetParentSpanId(), request.GetSpanId()) || !bytes.Equal(span.GetTraceId(), request.GetTraceId()) {
				t.Errorf("%s does not belong to the request", span.GetName())
			}
		}
		for _, batch := range []*tracepb.Span{admit, settle} {
			if !linked(batch, request) || !linked(request, batch) {
				t.Errorf("%s and the request have no links to each other", batch.GetName())
			}
		}
		to.calls(t, admit, "evalsha")
		to.calls(t, settle, "sql.conn.begin_tx", "sql.conn.exec")
		for _, span := range to.spans {
			if len(span.GetParentSpanId()) == 0 && span.GetKind() != tracepb.Span_SPAN_KIND_SERVER {
				t.Errorf("a trace begins with %s, which is no request", span.GetName())
			}
		}
		for what, secret := range map[string]string{
			"the user's id": buyer.user, "the path token": path, "the bearer token": buyer.token,
			"a statement": "INSERT",
		} {
			if bytes.Contains(to.bytes, []byte(secret)) {
				t.Errorf("%s was sent", what)
			}
		}
	})
}

// A client's traceparent decides whether its request is traced, and under which id.
func TestTraceparent(t *testing.T) {
	t.Parallel()
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for ratio, wants := range map[float64]map[string]string{ // by ratio of traced requests, then by header: the trace's id
		0: {"00-" + id + "-" + parent + "-01": id, "": "", "00-xyz": ""},
		1: {"00-" + id + "-" + parent + "-00": "", "": "any"},
	} {
		for header, want := range wants {
			pace.Try(t, func(t *pace.Trial) {
				to := newCollector(t)
				s := start(t, func(c *config.Settings) { c.OTLPEndpoint, c.TraceRatio = to.url, ratio })
				s.anyone().call("GET", "/api/v1/time", nil, "traceparent", header).want(200)
				s.stop()
				got := ""
				for _, span := range to.named("GET /api/v1/time") {
					got += hex.EncodeToString(span.GetTraceId())
				}
				wrong := t.Errorf
				if got == "" {
					wrong = t.Slowf // the stop gives up spans that are not sent in time
				}
				if got != want && (want != "any" || len(got) != len(id)) {
					wrong("ratio %v, traceparent %q: the trace %q, want %q", ratio, header, got, want)
				}
			})
		}
	}
}

// Without its collector an instance loses spans, and nothing else.
func TestTraceWithoutCollector(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.OTLPEndpoint, c.TraceRatio = "http://127.0.0.1:1", 1 })
	s.buyer("ann").buy(s.createSale(nil).ID, 1)
	s.stop()
}
