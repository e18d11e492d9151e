package repository

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// A long detail is cut to the length of its column, in characters, and says so.
func TestLog(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct{ detail, want string }{
			"short":                   {"a unit repaired", "a unit repaired"},
			"empty":                   {"", ""},
			"as long as the column":   {strings.Repeat("x", detailLength), strings.Repeat("x", detailLength)},
			"longer than the column":  {strings.Repeat("x", detailLength+1), strings.Repeat("x", detailLength-1) + "…"},
			"longer, in 3 bytes each": {strings.Repeat("补", 3*detailLength), strings.Repeat("补", detailLength-1) + "…"},
			"longer, in 4 bytes each": {strings.Repeat("🛒", detailLength+7), strings.Repeat("🛒", detailLength-1) + "…"},
		} {
			check.NoError(t, d.Log(t.Context(), "engine", "repair", name, tc.detail))
			check.Same(t, "rows in the log about "+name, d.logged(t, "engine", "repair", name, tc.want), 1)
		}
	})
}

// The operations on a subject come in pages, the newest first.
func TestOperations(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		before := d.now(t)
		for i := range 5 {
			for _, subject := range []string{"A", "a", "B"} {
				check.NoError(t, d.Log(t.Context(), "op", "patch", subject, fmt.Sprint(subject, i)))
			}
		}
		after := d.now(t)
		for _, size := range []int{0, 1, 2, 4, 5, 6} {
			wantPages(t, max(1, size), func(cursor string) ([]model.AuditEntry, string, error) {
				return d.Operations(t.Context(), "A", cursor, size)
			}, func(o model.AuditEntry) string {
				if o.Actor != "op" || o.Action != "patch" || o.At.Before(before) || o.At.After(after) {
					t.Errorf("read %+v", o)
				}
				return o.Detail
			}, []string{"A4", "A3", "A2", "A1", "A0"})
		}
		for _, cursor := range []string{"x", "1.5", "' OR 1=1", "99999999999999999999"} {
			list, next, err := d.Operations(t.Context(), "A", cursor, 5)
			if !errors.Is(err, model.ErrBadCursor) || list != nil || next != "" {
				t.Errorf("after %q: %v, %q, %v", cursor, list, next, err)
			}
		}
		if list, next, err := d.Operations(t.Context(), "nothing", "", 5); err != nil || len(list) != 0 || next != "" {
			t.Errorf("of an unknown subject: %v, %q, %v", list, next, err)
		}
	})
}

func TestLease(t *testing.T) {
	const over = -time.Second // the lease is over at once
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, step := range []struct {
			name, lease, holder string
			ttl                 time.Duration
			want                bool
		}{
			{"it is free", "audit", "a", time.Hour, true},
			{"another holder has it", "audit", "b", time.Hour, false},
			{"its holder extends it", "audit", "a", time.Hour, true},
			{"another lease is free", "expire", "b", time.Hour, true},
			{"its holder lets it end", "audit", "a", over, true},
			{"it is over", "audit", "b", time.Hour, true},
			{"the old holder has lost it", "audit", "a", time.Hour, false},
			{"the new holder has it", "audit", "b", time.Hour, true},
			{"holders compare byte by byte", "audit", "B", time.Hour, false},
		} {
			check.Same(t, step.name, check.Must(d.Lease(t.Context(), step.lease, step.holder, step.ttl)), step.want)
		}
	})
}

// A lease that ends later than any holder may ask for was given before the clock was set back. It is over.
func TestHole52_LeaseFromTheFuture(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for left, want := range map[time.Duration]bool{time.Minute: false, time.Hour: true} {
			d.exec(t, "DELETE FROM leases")
			d.exec(t, "INSERT INTO leases (name, holder, until_ms) VALUES ('audit', 'a', "+d.nowMillis()+" + ?)", left.Milliseconds())
			got := check.Must(d.Lease(t.Context(), "audit", "b", 2*time.Minute))
			check.Same(t, fmt.Sprint("a lease for another ", left), got, want)
		}
	})
}

func TestOneOfManyGetsTheLease(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := d.pair(t)
		for _, round := range []string{"a new lease", "a lease that is over"} {
			got := check.Collect(20, func(i int) bool {
				got, err := stores[i%2].Lease(t.Context(), "audit", fmt.Sprint(round, i), time.Hour)
				check.Error(t, "lease", err, nil)
				return got
			})
			check.Same(t, "holders of "+round, trues(got), 1)
			d.exec(t, "UPDATE leases SET until_ms = 0")
		}
	})
}

func trues(list []bool) (n int) {
	for _, b := range list {
		if b {
			n++
		}
	}
	return n
}

// All instances derive orders' ids with one key, whichever of them made it.
func TestDataKey(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		if key, err := d.KeptKey(t.Context(), "order_ids"); key != nil || err != nil {
			t.Errorf("before the key is made: %x, %v", key, err)
		}
		check.Same(t, "keys made by KeptKey", d.count(t, "SELECT COUNT(*) FROM data_keys"), 0)
		stores := d.pair(t)
		keys := check.Collect(16, func(i int) []byte {
			key, err := stores[i%2].DataKey(t.Context(), "order_ids")
			check.Error(t, "data key", err, nil)
			return key
		})
		for name, read := range map[string]func() ([]byte, error){
			"DataKey": func() ([]byte, error) { return d.DataKey(t.Context(), "order_ids") },
			"KeptKey": func() ([]byte, error) { return d.KeptKey(t.Context(), "order_ids") },
		} {
			later, err := read()
			check.NoError(t, err)
			for _, key := range keys {
				check.Same(t, "the key, and the key that "+name+" returns later", key, later)
			}
		}
		other, err := d.DataKey(t.Context(), "path_tokens")
		if err != nil || len(other) != 32 || len(keys[0]) != 32 || bytes.Equal(other, keys[0]) {
			t.Errorf("under another name: %x, %v; the first key is %x", other, err, keys[0])
		}
	})
}
