package model

import "time"

// Rehearsal is the result of a rehearsal.
type Rehearsal struct {
	ID        int64
	At        time.Time // when it was stored, by the database's clock
	Version   string    // of the program
	Verdict   string    // RehearsalPassed or another
	Buyers    int64
	Units     int64
	PerSecond int64  // the most arrivals in a second
	Report    []byte // JSON; empty in a list of rehearsals
}

// RehearsalPassed is the verdict of a rehearsal that went as planned and found nothing wrong.
const RehearsalPassed = "passed"
