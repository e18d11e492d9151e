//go:build !failpoints

package app

import (
	"time"

	"flashsale/gate"
	"flashsale/repository"
)

// withFailpoints returns its arguments unchanged. A build with the tag failpoints, for drills, can be made to die at
// certain calls of these two parts.
func withFailpoints(g *gate.Gate, db *repository.Store) (*gate.Gate, *repository.Store) { return g, db }

// clock returns this machine's time. In a build with the tag failpoints the clock can be shifted.
func clock() time.Time { return time.Now() }
