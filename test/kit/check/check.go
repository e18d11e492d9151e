// Package check has what the tests of many packages share: comparisons, tables, crowds, waits and a log. It imports only
// the standard library and pace, so the tests of every package can use it.
package check

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/test/kit/pace"
)

const (
	// Patience bounds each wait for an event that must come. It is far above what a busy machine needs, also for a Kafka
	// session and a broker's start.
	Patience = 5 * time.Minute
	// pollEvery is the pause between two looks at a state that nothing announces.
	pollEvery = 5 * time.Millisecond
)

// Same fails the test if two values differ.
func Same[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
	}
}

// Error fails the test unless err wraps want. If want is nil, err must be nil.
func Error(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: the error is %v, want %v", what, err, want)
	}
}

// NoError ends the test if there is an error. Only the goroutine of the test may call it; other goroutines call Done.
func NoError(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Must returns a value that comes without an error. Done is for a call that returns nothing else.
func Must[T any](value T, err error) T {
	Done(err)
	return value
}

// Done panics if there is an error.
func Done(err error) {
	if err != nil {
		panic(err)
	}
}

// Each runs the cases of a table as subtests.
func Each[T any](t *testing.T, cases map[string]T, test func(t *testing.T, tc T)) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { test(t, tc) })
	}
}

// EachInBubble is Each under a fake clock.
func EachInBubble[T any](t *testing.T, cases map[string]T, test func(t *testing.T, tc T)) {
	t.Helper()
	Each(t, cases, func(t *testing.T, tc T) { synctest.Test(t, func(t *testing.T) { test(t, tc) }) })
}

// Together runs do for 0 to n-1 in goroutines, and waits for their end. No call begins before all goroutines run.
func Together(n int, do func(i int)) {
	begin := make(chan struct{})
	var ready, running sync.WaitGroup
	ready.Add(n)
	for i := range n {
		running.Go(func() {
			ready.Done()
			<-begin
			do(i)
		})
	}
	ready.Wait()
	close(begin)
	running.Wait()
}

// Collect is Together for a function with a result.
func Collect[T any](n int, do func(i int) T) []T {
	results := make([]T, n)
	Together(n, func(i int) { results[i] = do(i) })
	return results
}

// Eventually waits until ok returns true, for states that nothing announces.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(Patience)
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline:
			pace.Fatalf(t, "%s: not within %s", what, Patience)
		}
	}
}

// Receive returns the next value of a channel, or the zero value of a closed channel.
func Receive[T any](t testing.TB, what string, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(Patience):
		pace.Fatalf(t, "%s: not within %s", what, Patience)
	}
	return value
}

// Log is a slog.Handler that keeps the level and the message of each line.
type Log struct {
	mu    sync.Mutex
	lines []string
}

// Enabled implements slog.Handler, as do the next three methods.
func (*Log) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs ignores the attributes.
func (l *Log) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup ignores the group.
func (l *Log) WithGroup(string) slog.Handler { return l }

// Handle keeps a line.
func (l *Log) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Level.String()+" "+r.Message)
	return nil
}

// Lines returns all lines.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// Count returns how many lines contain a text.
func (l *Log) Count(text string) (n int) {
	for _, line := range l.Lines() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
