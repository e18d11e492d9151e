package model

import "context"

type requestID struct{}

// WithRequestID returns a context that carries a request's id, for the log.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestID{}, id)
}

// RequestIDOf returns the request id that ctx carries, or an empty string.
func RequestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestID{}).(string)
	return id
}
