package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// The limits of the steps of a stop. A stop should take less than ten seconds. Besides these steps, the strategy's
// batches and the workers' transactions finish within time-outs of their own.
const (
	httpStop  = 3 * time.Second // running requests finish
	drainStop = 2 * time.Second // entries are settled; the last batch may also take the settler's own time-out
	leaveStop = 500 * time.Millisecond
)

// Run serves until ctx ends, then stops in this order: no new requests are taken, running ones finish, the queue's
// entries are settled, the workers end. It returns nil after an orderly stop. Close must follow.
func (a *App) Run(ctx context.Context) error {
	working, stopWorkers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorkers()
	var running sync.WaitGroup
	for _, work := range a.workers {
		running.Go(func() { work(working) })
	}
	failed := make(chan error, 2)
	serve := func(s *http.Server, l net.Listener) {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}
	running.Go(func() { serve(a.server, a.listener) })
	if a.ops != nil {
		running.Go(func() { serve(a.ops, a.opsListener) })
	}

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	a.Log.Info("stopping")
	close(a.closing)
	a.Waiters.Close()
	err = errors.Join(err, a.stop(context.WithoutCancel(ctx)))
	stopWorkers()
	running.Wait()
	return errors.Join(err, a.leave(context.WithoutCancel(ctx)))
}

// stop ends the requests and the strategy, then settles the entries that they left in the queue.
func (a *App) stop(ctx context.Context) error {
	httpCtx, cancel := context.WithTimeout(ctx, httpStop)
	defer cancel()
	var others sync.WaitGroup
	others.Go(a.streams.Close) // their connections are hijacked, so Shutdown does not end them
	if a.lab.Desk != nil {
		others.Go(func() {
			if err := a.lab.Desk.Close(httpCtx); err != nil {
				a.Log.Warn("the lab's stores are left behind; the next start deletes them", "error", err)
			}
		})
	}
	err := a.server.Shutdown(httpCtx)
	others.Wait()
	if errors.Is(err, context.DeadlineExceeded) {
		err = a.server.Close()
	}
	if a.ops != nil {
		err = errors.Join(err, a.ops.Close())
	}
	a.Strategy.Close()
	a.called.Close()
	a.lines.Close()
	drainCtx, cancel := context.WithTimeout(ctx, drainStop)
	defer cancel()
	if drainErr := a.Settler.Drain(drainCtx); drainErr != nil {
		a.Log.Warn("entries stay in the stream; another instance settles them", "error", drainErr)
	}
	return err
}

// leave removes this instance from the list of running instances.
func (a *App) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveStop)
	defer cancel()
	if err := a.gate.Leave(ctx); err != nil {
		a.Log.Debug("can't remove this instance from the list", "error", err) // Redis is down; the list drops this instance once it stops reporting
	}
	return nil
}
