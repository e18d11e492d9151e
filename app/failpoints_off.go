//go:build !failpoints

package app

import (
	"time"

	"flashsale/internal/observe"
)

// failpoints returns no observers. In a build with the tag failpoints, for drills, one observer ends the process at a step.
func failpoints() observe.All { return nil }

// clock returns this machine's time. In a build with the tag failpoints the clock can be shifted.
func clock() time.Time { return time.Now() }
