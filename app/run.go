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

// Limits of steps of a stop, which should take less than ten seconds in all. Other steps have time-outs of their own.
const (
	httpStop  = 3 * time.Second // running requests finish
	drainStop = 2 * time.Second // admitted attempts are settled
	leaveStop = 500 * time.Millisecond
)

// part is a part of the app that starts and stops as a whole. A stop has three steps: stop is called, the context of the run
// functions ends, and these return.
type part struct {
	name  string
	run   []func(context.Context)
	stop  func(context.Context) error
	limit time.Duration // of stop; 0: stop gets a context that has ended
}

// parts returns the parts in the order in which they stop; they start in the reverse order. A part may call fail to stop the app.
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

// Run starts the parts, and stops them when ctx ends or a server fails. It returns the failure of the server and the errors of
// the stops. If ctx has ended, a failure of a server is not returned. Close must follow.
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

// serving returns a run function that serves at a listener until the server is closed, or none if the listener is nil. When the
// function's context ends, so do the contexts of requests.
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

// closing makes the stop of a part from a function that needs no context.
func closing(end func()) func(context.Context) error {
	return func(context.Context) error {
		end()
		return nil
	}
}

// endWaits ends the waits of buyers whose attempts are admitted, and the answers that watch the channel closing. From now on,
// /readyz answers 503.
func (a *App) endWaits(context.Context) error {
	close(a.closing)
	a.Waiters.Close()
	return nil
}

// endRequests takes no new requests, and waits for those under way, for the streams and for the lab. If requests are still under
// way when ctx ends, their connections are closed.
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

// drain settles this instance's admitted attempts. If that fails, it is only logged.
func (a *App) drain(ctx context.Context) error {
	if err := a.Settler.Drain(ctx); err != nil {
		a.Log.Warn("entries stay in the stream; another instance settles them", "error", err)
	}
	return nil
}

func (a *App) leave(ctx context.Context) error {
	if err := a.gate.Leave(ctx); err != nil {
		a.Log.Debug("can't remove this instance from the list", "error", err)
	}
	return nil
}
