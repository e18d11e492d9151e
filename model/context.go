package model

import "context"

type requestID struct{}

// WithRequestID returns a context that carries the request's id. Every line of the log that is written with it has the id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestID{}, id)
}

// RequestIDOf returns the request id that ctx carries, or an empty string.
func RequestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestID{}).(string)
	return id
}
