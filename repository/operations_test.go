package repository

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"flashsale/model"
)

func TestLog(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		before := d.now(t).UnixMilli()
		for name, tc := range map[string]struct{ detail, want string }{
			"short":                       {"a unit repaired", "a unit repaired"},
			"empty":                       {"", ""},
			"as long as the column":       {strings.Repeat("x", detailLength), strings.Repeat("x", detailLength)},
			"longer than the column":      {strings.Repeat("x", detailLength+1), strings.Repeat("x", detailLength)},
			"longer, several bytes each":  {strings.Repeat("补", 3*detailLength), strings.Repeat("补", detailLength)},
			"longer, with an astral sign": {strings.Repeat("🛒", detailLength+7), strings.Repeat("🛒", detailLength)},
		} {
			t.Run(name, func(t *testing.T) {
				if err := d.Log(t.Context(), "engine", "repair", name, tc.detail); err != nil {
					t.Fatal(err)
				}
				var rows []struct {
					AtMs                  int64
					Actor, Action, Detail string
				}
				if err := d.read.WithContext(t.Context()).Raw("SELECT at_ms, actor, action, detail FROM operations WHERE subject = ?", name).Scan(&rows).Error; err != nil {
					t.Fatal(err)
				}
				if len(rows) != 1 || rows[0].Actor != "engine" || rows[0].Action != "repair" || rows[0].Detail != tc.want || rows[0].AtMs < before {
					t.Errorf("%d rows, of %d characters", len(rows), utf8.RuneCountInString(fmt.Sprint(rows)))
				}
			})
		}
	})
}

// What was done to a subject in pages, the newest first, and nothing that was done to another.
func TestOperations(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		before := d.now(t)
		for i := range 5 {
			for _, subject := range []string{"A", "a", "B"} {
				if err := d.Log(t.Context(), "op", "patch", subject, fmt.Sprint(subject, i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, size := range []int{0, 1, 2, 4, 5, 6} {
			var got []string
			for cursor := ""; len(got) <= 5; {
				list, next, err := d.Operations(t.Context(), "A", cursor, size)
				if err != nil || len(list) > max(1, size) {
					t.Fatalf("%d on a page of %d: %v", len(list), size, err)
				}
				for _, o := range list {
					got = append(got, o.Detail)
					if o.Actor != "op" || o.Action != "patch" || o.At.Before(before) || o.At.After(d.now(t)) {
						t.Errorf("read %+v", o)
					}
				}
				if cursor = next; cursor == "" {
					break
				}
			}
			if want := []string{"A4", "A3", "A2", "A1", "A0"}; !slices.Equal(got, want) {
				t.Errorf("pages of %d: %v, want %v", size, got, want)
			}
		}
		for _, cursor := range []string{"x", "1.5", "' OR 1=1", "99999999999999999999"} {
			if list, next, err := d.Operations(t.Context(), "A", cursor, 5); !errors.Is(err, model.ErrBadCursor) || list != nil || next != "" {
				t.Errorf("behind %q: %v, %q, %v", cursor, list, next, err)
			}
		}
		if list, next, err := d.Operations(t.Context(), "nothing", "", 5); err != nil || len(list) != 0 || next != "" {
			t.Errorf("of nothing: %v, %q, %v", list, next, err)
		}
	})
}

func TestLease(t *testing.T) {
	const over = -time.Second // a lease that is over as soon as it is given
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, step := range []struct {
			name, lease, holder string
			ttl                 time.Duration
			want                bool
		}{
			{"it is free", "audit", "a", time.Hour, true},
			{"another one has it", "audit", "b", time.Hour, false},
			{"its holder prolongs it", "audit", "a", time.Hour, true},
			{"another lease is free", "expire", "b", time.Hour, true},
			{"its holder lets it end", "audit", "a", over, true},
			{"it is over", "audit", "b", time.Hour, true},
			{"the old holder lost it", "audit", "a", time.Hour, false},
			{"the new holder has it", "audit", "b", time.Hour, true},
			{"holders compare byte by byte", "audit", "B", time.Hour, false},
		} {
			t.Run(step.name, func(t *testing.T) {
				if got, err := d.Lease(t.Context(), step.lease, step.holder, step.ttl); got != step.want || err != nil {
					t.Errorf("got it: %t, %v", got, err)
				}
			})
		}
	})
}

// TestHole52_LeaseFromTheFuture: nobody gives a lease for so long, so the clock was set back, and the lease is over.
func TestHole52_LeaseFromTheFuture(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, tc := range []struct {
			left time.Duration
			got  bool
		}{{time.Minute, false}, {time.Hour, true}} {
			d.exec(t, "DELETE FROM leases")
			d.exec(t, "INSERT INTO leases (name, holder, until_ms) VALUES ('audit', 'a', "+d.nowMillis()+" + ?)", tc.left.Milliseconds())
			if got, err := d.Lease(t.Context(), "audit", "b", 2*time.Minute); got != tc.got || err != nil {
				t.Errorf("of a lease for another %s: got it %t, %v", tc.left, got, err)
			}
		}
	})
}

func TestOneOfManyGetsTheLease(t *testing.T) {
	const crowd = 20
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := []*testDB{d, d.peer(t)}
		for round, ttl := range []time.Duration{time.Hour, time.Hour} { // a fresh one, then one that is over
			var holders atomic.Int32
			together(crowd, func(i int) {
				got, err := stores[i%2].Lease(t.Context(), "audit", fmt.Sprint("instance ", round, "-", i), ttl)
				if err != nil {
					t.Errorf("lease: %v", err)
				}
				if got {
					holders.Add(1)
				}
			})
			if n := holders.Load(); n != 1 {
				t.Errorf("round %d has %d holders", round, n)
			}
			d.exec(t, "UPDATE leases SET until_ms = 0")
		}
	})
}

// All instances derive orders' ids with one key, whoever made it.
func TestDataKey(t *testing.T) {
	const crowd = 16
	onBoth(t, func(t *testing.T, d *testDB) {
		stores, keys := []*testDB{d, d.peer(t)}, make([][]byte, crowd)
		together(crowd, func(i int) {
			var err error
			if keys[i], err = stores[i%2].DataKey(t.Context(), "order_ids"); err != nil {
				t.Errorf("data key: %v", err)
			}
		})
		for i, key := range keys {
			if len(key) != 32 || !bytes.Equal(key, keys[0]) {
				t.Errorf("caller %d got %d other bytes", i, len(key))
			}
		}
		again, err := d.DataKey(t.Context(), "order_ids")
		if err != nil || !bytes.Equal(again, keys[0]) {
			t.Errorf("later it is another key: %v", err)
		}
		other, err := d.DataKey(t.Context(), "path_tokens")
		if err != nil || len(other) != 32 || bytes.Equal(other, keys[0]) {
			t.Errorf("another name has the same key: %v", err)
		}
	})
}
