package model

import "context"

type requestID struct{}

// WithRequestID gives a context of the request with this id; the log names it on every line that is about it.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestID{}, id)
}

// RequestIDOf gives the id of the request that a context belongs to; empty if it belongs to none.
func RequestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestID{}).(string)
	return id
}
