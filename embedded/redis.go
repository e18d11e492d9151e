// Package embedded is what a server runs on that has nothing installed beside it: a Redis inside the process.
// The SQLite file, its other half, needs no server.
package embedded

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// clockStep is how far the clock moves at a time by which keys end. The server looks at all its keys whenever it has moved:
// with a clock that runs by itself, that is at each command of each script, and with the counters of a rush, a key for
// each user, nearly all of its work. By this much a key may end too early or too late. TIME is exact.
const clockStep = 50 * time.Millisecond

// Redis is a Redis server in this process. It keeps nothing when it stops: the gates are installed from the
// database at the next start.
type Redis struct {
	server   *miniredis.Miniredis
	password string
	stopped  chan struct{}
	stop     func() // closes stopped, once
	clock    sync.WaitGroup
}

// StartRedis starts one on a free port of the loopback interface, behind a password that only this process
// knows, so that nobody else on the machine can speak to it.
func StartRedis() (*Redis, error) {
	r := &Redis{server: miniredis.NewMiniRedis(), password: rand.Text(), stopped: make(chan struct{})}
	r.stop = sync.OnceFunc(func() { close(r.stopped) })
	r.server.RequireAuth(r.password)
	r.server.SetTime(machineTime()) // in steps from the start: a step back from a running clock would move ends
	if err := r.server.Start(); err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	r.server.ClockTTL(true) // without it, keys never end
	r.server.Server().SetPreHook(answerTime)
	r.clock.Go(r.tick)
	return r, nil
}

// tick moves the clock until the server is closed.
func (r *Redis) tick() {
	ticker := time.NewTicker(clockStep)
	defer ticker.Stop()
	for {
		select {
		case <-r.stopped:
			return
		case now := <-ticker.C:
			r.server.SetTime(now)
		}
	}
}

// answerTime answers TIME, by which sales start and end, at the top and in scripts.
func answerTime(c *server.Peer, cmd string, args ...string) bool {
	if cmd != "TIME" || len(args) > 0 {
		return false
	}
	now := machineTime()
	c.WriteLen(2)
	c.WriteBulk(strconv.FormatInt(now.Unix(), 10))
	c.WriteBulk(strconv.Itoa(now.Nanosecond() / 1000))
	return true
}

func machineTime() time.Time {
	return time.Now() //nolint:forbidigo // a store has a clock of its own, as any Redis does
}

// URL is where a client finds it.
func (r *Redis) URL() string { return "redis://:" + r.password + "@" + r.server.Addr() + "/0" }

// Close stops it.
func (r *Redis) Close() {
	r.stop()
	r.clock.Wait()
	r.server.Close()
}
