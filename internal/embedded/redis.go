// Package embedded runs a Redis server inside the process.
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

// clockStep is the step of the clock that expires keys, so a key may expire a little too early or too late. The steps save work,
// because the server scans all its keys whenever the clock has moved. The command TIME is exact.
const clockStep = 50 * time.Millisecond

// Redis is a server whose data is lost when it stops.
type Redis struct {
	server   *miniredis.Miniredis
	password string
	stop     func() // ends the clock
	clock    sync.WaitGroup
}

// StartRedis starts a Redis on a free port of the loopback interface. The server requires a random password, so that other
// processes on the machine can't use it.
func StartRedis() (*Redis, error) {
	r := &Redis{server: miniredis.NewMiniRedis(), password: rand.Text()}
	r.server.RequireAuth(r.password)
	r.server.SetTime(machineTime()) // before Start, or the clock might step back and shift expiries
	if err := r.server.Start(); err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	r.server.ClockTTL(true) // without it, keys never expire
	r.server.Server().SetPreHook(answerTime)
	ticker, stopped := time.NewTicker(clockStep), make(chan struct{})
	r.stop = sync.OnceFunc(func() { close(stopped) })
	r.clock.Go(func() {
		defer ticker.Stop()
		for {
			select {
			case now := <-ticker.C:
				r.server.SetTime(now)
			case <-stopped:
				return
			}
		}
	})
	return r, nil
}

// answerTime answers the command TIME with the exact time. For other commands it returns false.
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
	return time.Now() //nolint:forbidigo // like any Redis, this store reads its machine's clock
}

// URL returns the address for clients, with the password.
func (r *Redis) URL() string { return "redis://:" + r.password + "@" + r.server.Addr() + "/0" }

// Close stops the server.
func (r *Redis) Close() {
	r.stop()
	r.clock.Wait()
	r.server.Close()
}
