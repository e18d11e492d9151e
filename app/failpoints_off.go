//go:build !failpoints

package app

import (
	"time"

	"flashsale/gate"
	"flashsale/repository"
)

// withFailpoints is where a build for drills puts the places at which it can be made to die; a release has none.
func withFailpoints(g *gate.Gate, db *repository.Store) (*gate.Gate, *repository.Store) { return g, db }

// clock is this machine's; a build for drills can be told to go wrong.
func clock() time.Time { return time.Now() }
