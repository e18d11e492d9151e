package service

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"flashsale/internal/tracing"
	"flashsale/model"
	"flashsale/test/kit/check"
)

// traced is the context of request-1, whose trace has this id.
func traced(t *testing.T, id string) context.Context {
	t.Helper()
	return trace.ContextWithSpanContext(model.WithRequestID(t.Context(), "request-1"), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: check.Must(trace.TraceIDFromHex(id)), SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	}))
}

// Every line that the use cases log about a request has the request's id and its trace.
func TestLinesNameTheirRequest(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	var out bytes.Buffer
	log := slog.New(tracing.Logs(slog.NewJSONHandler(&out, nil)))
	logged := func(what string, want ...string) {
		t.Helper()
		type line struct {
			Msg       string
			RequestID string `json:"request_id"`
			TraceID   string `json:"trace_id"`
		}
		var lines, wanted []line
		for text := range bytes.Lines(out.Bytes()) {
			var l line
			check.Done(json.Unmarshal(text, &l))
			lines = append(lines, l)
		}
		for _, msg := range want {
			wanted = append(wanted, line{msg, "request-1", id})
		}
		check.Same(t, what, lines, wanted)
		out.Reset()
	}
	sales, shop := newShop(t)
	sales.Log, sales.Gates.log = log, log
	made, invalid, err := sales.Create(traced(t, id), draft(), 50, "operator")
	if err != nil || invalid != nil {
		t.Fatal(invalid, err)
	}
	logged("a new sale", "gate installed")
	shop.errTold, shop.failing = errAway, "peek"
	_, _, err = sales.Create(traced(t, id), draft(), 50, "operator")
	check.Error(t, "a new sale without Redis", err, nil)
	const polling = "other instances will find a change by polling"
	logged("a new sale without Redis", "a new sale has no gate yet; the controller will install it", polling)
	_, verdict, _, err := sales.Patch(traced(t, id), made.ID, SalePatch{AddQuota: 1}, "operator")
	check.Error(t, "a change without Redis", err, nil)
	check.Same(t, "a change without Redis", verdict, model.Accepted)
	logged("a change without Redis", "the gate missed a change and will be replaced",
		"the gate does not have a change of the database yet", polling)
}
