//go:build !failpoints

package app

import (
	"time"

	"flashsale/internal/observe"
)

// failpoints returns no observers: only builds with the tag failpoints have some, for drills.
func failpoints() observe.All { return nil }

// clock returns this machine's time. In builds with the tag failpoints it can be shifted.
func clock() time.Time { return time.Now() }
