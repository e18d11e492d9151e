package service

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"flashsale/internal/tracing"
	"flashsale/model"
)

// traced is the context of request-1, whose trace has this id.
func traced(t *testing.T, id string) context.Context {
	t.Helper()
	traceID, err := trace.TraceIDFromHex(id)
	if err != nil {
		t.Fatal(err)
	}
	return trace.ContextWithSpanContext(model.WithRequestID(t.Context(), "request-1"), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	}))
}

// What the use cases log about a request can be found by the request's id and by its trace.
func TestLinesNameTheirRequest(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	var out bytes.Buffer
	log := slog.New(tracing.Logs(slog.NewJSONHandler(&out, nil)))
	lines := func() (said []string) {
		t.Helper()
		for line := range bytes.Lines(out.Bytes()) {
			var l struct {
				Msg       string
				RequestID string `json:"request_id"`
				TraceID   string `json:"trace_id"`
			}
			if err := json.Unmarshal(line, &l); err != nil || l.TraceID != id || l.RequestID != "request-1" {
				t.Errorf("%v: %s", err, line)
			}
			said = append(said, l.Msg)
		}
		out.Reset()
		return said
	}
	sales, shop := newShop(t)
	sales.Log, sales.Gates.log = log, log
	made, invalid, err := sales.Create(traced(t, id), draft(), 50, "operator")
	if err != nil || invalid != nil {
		t.Fatal(invalid, err)
	}
	if got, want := lines(), []string{"gate installed"}; !slices.Equal(got, want) {
		t.Errorf("a new sale: %q", got)
	}
	shop.errGate, shop.failing = errAway, "peek"
	if _, _, err := sales.Create(traced(t, id), draft(), 50, "operator"); err != nil {
		t.Fatal(err)
	}
	if got, want := lines(), []string{"a new sale has no gate yet; the controller will install it", "other instances will find a change by polling"}; !slices.Equal(got, want) {
		t.Errorf("a new sale without Redis: %q", got)
	}
	if _, verdict, _, err := sales.Patch(traced(t, id), made.ID, SalePatch{AddQuota: 1}, "operator"); err != nil || verdict != model.Accepted {
		t.Fatal(verdict, err)
	}
	if got, want := lines(), []string{"the gate missed a change and will be replaced", "the gate could not be told of a change yet", "other instances will find a change by polling"}; !slices.Equal(got, want) {
		t.Errorf("a change without Redis: %q", got)
	}
}
