package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"flashsale/internal/listen"
)

// The limits of the steps of a stop. A stop should take less than ten seconds. The strategy's batches and the workers'
// transactions have time-outs of their own, which are not in these limits.
const (
	httpStop  = 3 * time.Second // running requests finish
	drainStop = 2 * time.Second // admitted attempts are settled; a batch under way may go on until the settler's own time-out
	leaveStop = 500 * time.Millisecond
)

// part is a part of the app that starts and stops as a whole. A part stops in three steps: stop is called, the context of the run
// functions ends, and they return.
type part struct {
	name  string
	run   []func(context.Context)
	stop  func(context.Context) error
	limit time.Duration // of stop; 0: stop does not use its context, which has ended
}

// parts returns the parts in the order in which they stop. They start in the reverse order. The function fail stops the app.
func (a *App) parts(fail func(error)) []part {
	return []part{
		{name: "waits", stop: a.endWaits},
		{name: "requests", run: serving(a.server, listen.Listener{Listener: a.listener}, fail), stop: a.endRequests, limit: httpStop},
		{name: "operators' address", run: serving(a.ops, a.opsListener, fail), stop: func(context.Context) error { return a.ops.Close() }},
		{name: "strategy", stop: closing(a.Strategy.Close)},
		{name: "purchases of called users", stop: closing(a.called.Close)},
		{name: "entries of lines", stop: closing(a.lines.Close)},
		{name: "admitted attempts", stop: a.drain, limit: drainStop},
		{name: "workers", run: a.workers},
		{name: "list of instances", stop: a.leave, limit: leaveStop},
	}
}

// Run serves until ctx ends or a server fails, then stops the parts in their order. It returns the failure of the server joined
// with the errors of the stops, or nil if there are none. Close must follow.
func (a *App) Run(ctx context.Context) error {
	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	parts := a.parts(fail)
	ends := make([]func() error, len(parts))
	for i, p := range slices.Backward(parts) {
		ends[i] = p.start(context.WithoutCancel(ctx))
	}
	<-working.Done()
	a.Log.Info("stopping")
	var err error
	if ctx.Err() == nil {
		err = context.Cause(working)
	}
	for i, p := range parts {
		err = errors.Join(err, ends[i]())
		a.Log.Debug("stopped", "part", p.name)
	}
	return err
}

func (p part) start(ctx context.Context) (end func() error) {
	running, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	for _, run := range p.run {
		work.Go(func() { run(running) })
	}
	return func() (err error) {
		if p.stop != nil {
			limited, free := context.WithTimeout(ctx, p.limit)
			defer free()
			err = p.stop(limited)
		}
		cancel()
		work.Wait()
		return err
	}
}

// serving returns the run functions that serve at a listener until the server is closed: none if the listener is nil. When the
// context of a run function ends, the requests that are under way are cancelled.
func serving(s *http.Server, l net.Listener, fail func(error)) []func(context.Context) {
	if l == nil {
		return nil
	}
	return []func(context.Context){func(ctx context.Context) {
		s.BaseContext = func(net.Listener) context.Context { return ctx }
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			fail(err)
		}
	}}
}

// closing returns the stop of a part that ends by a function with limits of its own.
func closing(end func()) func(context.Context) error {
	return func(context.Context) error {
		end()
		return nil
	}
}

// endWaits ends the waits of buyers for their orders, and live figures, exports and proofs. From now on, /readyz answers 503.
func (a *App) endWaits(context.Context) error {
	close(a.closing)
	a.Waiters.Close()
	return nil
}

// endRequests takes no new requests, and waits for those under way, for the streams and for the lab. Requests that are still
// under way when ctx ends are cut off.
func (a *App) endRequests(ctx context.Context) error {
	var others sync.WaitGroup
	others.Go(a.streams.Close) // their connections are hijacked, so Shutdown does not end them
	if a.lab.Desk != nil {
		others.Go(func() {
			if err := a.lab.Desk.Close(ctx); err != nil {
				a.Log.Warn("the lab's stores are left behind; the next start deletes them", "error", err)
			}
		})
	}
	err := a.server.Shutdown(ctx)
	others.Wait()
	if errors.Is(err, context.DeadlineExceeded) {
		err = a.server.Close()
	}
	return err
}

// drain settles the admitted attempts of this instance that are not settled yet. If it can't settle all, this is only logged.
func (a *App) drain(ctx context.Context) error {
	if err := a.Settler.Drain(ctx); err != nil {
		a.Log.Warn("entries stay in the stream; another instance settles them", "error", err)
	}
	return nil
}

func (a *App) leave(ctx context.Context) error {
	if err := a.gate.Leave(ctx); err != nil {
		a.Log.Debug("can't remove this instance from the list", "error", err) // the list drops an instance that stops reporting
	}
	return nil
}
