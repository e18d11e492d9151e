// Package embedded is what a server runs on that has nothing installed beside it: a Redis inside the process.
// The SQLite file, its other half, needs no server.
package embedded

import (
	"crypto/rand"
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// Redis is a Redis server in this process. It keeps nothing when it stops: the gates are installed from the
// database at the next start.
type Redis struct {
	server   *miniredis.Miniredis
	password string
}

// StartRedis starts one on a free port of the loopback interface, behind a password that only this process
// knows, so that nobody else on the machine can speak to it.
func StartRedis() (*Redis, error) {
	r := &Redis{server: miniredis.NewMiniRedis(), password: rand.Text()}
	r.server.RequireAuth(r.password)
	if err := r.server.Start(); err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	r.server.ClockTTL(true) // without it, keys never end
	return r, nil
}

// URL is where a client finds it.
func (r *Redis) URL() string { return "redis://:" + r.password + "@" + r.server.Addr() + "/0" }

// Close stops it.
func (r *Redis) Close() { r.server.Close() }
