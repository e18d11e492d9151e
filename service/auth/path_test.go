package auth

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

const pathTTL = time.Minute

func TestPathRoundTrip(t *testing.T) {
	path, expiresAt := NewPaths(tokenSecret, at(tokenTime)).Issue("u-1", "S1", pathTTL)
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(path) {
		t.Errorf("path %q is not 32 hex digits", path)
	}
	if want := tokenTime.Add(pathTTL).Truncate(time.Second); !expiresAt.Equal(want) || expiresAt.Location() != time.UTC {
		t.Errorf("expires at %s, want %s", expiresAt, want)
	}
	if want := fmt.Sprintf("%08x", expiresAt.Unix()); path[:8] != want {
		t.Errorf("path begins with %s, want the expiry, %s", path[:8], want)
	}
	for _, moment := range []struct {
		name string
		now  time.Time
		good bool
	}{
		{"when issued", tokenTime, true},
		{"at the last", expiresAt.Add(-1), true},
		{"expired", expiresAt, false},
		{"long expired", expiresAt.Add(24 * time.Hour), false},
	} {
		t.Run(moment.name, func(t *testing.T) {
			if got := NewPaths(tokenSecret, at(moment.now)).Check(path, "u-1", "S1"); got != moment.good {
				t.Errorf("good: %v, want %v", got, moment.good)
			}
		})
	}
}

// TestPathsDiffer takes pairs that a sum, or a plain joining, of the ids takes for one.
func TestPathsDiffer(t *testing.T) {
	paths := NewPaths(tokenSecret, at(tokenTime))
	tests := map[string]struct{ user, sale, otherUser, otherSale string }{
		"equal sums":           {"5", "3", "4", "4"},
		"equal when joined":    {"53", "", "5", "3"},
		"swapped":              {"5", "3", "3", "5"},
		"another user":         {"u-1", "S1", "u-2", "S1"},
		"another sale":         {"u-1", "S1", "u-1", "S2"},
		"a separator within":   {"u:1", "S1", "u", "1:S1"},
		"a length's own bytes": {"u\x00\x00\x00\x00\x00\x00\x00\x02", "S1", "u", "\x02S1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path, _ := paths.Issue(tc.user, tc.sale, pathTTL)
			other, _ := paths.Issue(tc.otherUser, tc.otherSale, pathTTL)
			if path == other {
				t.Errorf("both get %s", path)
			}
			if !paths.Check(path, tc.user, tc.sale) || !paths.Check(other, tc.otherUser, tc.otherSale) {
				t.Error("refused to its owner")
			}
			if paths.Check(path, tc.otherUser, tc.otherSale) || paths.Check(other, tc.user, tc.sale) {
				t.Error("taken from the other")
			}
		})
	}
}

func TestPathRefuses(t *testing.T) {
	paths := NewPaths(tokenSecret, at(tokenTime))
	path, _ := paths.Issue("u-1", "S1", pathTTL)
	tests := map[string]string{
		"empty":              "",
		"a digit short":      path[:31],
		"a digit long":       path + "0",
		"twice":              path + path,
		"upper case":         strings.ToUpper(path),
		"upper case, expiry": strings.ToUpper(path[:8]) + path[8:],
		"not hex":            "zzzzzzzz" + path[8:],
		"a sign":             "+" + path[1:],
		"no MAC":             path[:8] + strings.Repeat("0", 24),
		"a later expiry":     "ffffffff" + path[8:],
		"no expiry":          "00000000" + path[8:],
	}
	for i, digit := range path {
		for _, changed := range "0123456789abcdef" {
			if changed != digit {
				tests[fmt.Sprintf("digit %d is %c", i, changed)] = path[:i] + string(changed) + path[i+1:]
			}
		}
	}
	for name, tc := range tests {
		if paths.Check(tc, "u-1", "S1") {
			t.Errorf("%s: %q is taken", name, tc)
		}
	}
	if other := NewPaths([]byte("another secret"), at(tokenTime)); other.Check(path, "u-1", "S1") {
		t.Error("taken under another secret")
	}
}

// TestPathStaysTheSame pins the form: instances of two versions, behind one proxy, must agree on it. The
// value was worked out apart from this code.
func TestPathStaysTheSame(t *testing.T) {
	path, _ := NewPaths(tokenSecret, at(tokenTime)).Issue("u-1", "S1", pathTTL)
	if want := "6af4c97cc71ca7048d1fe595efcbe9a8"; path != want {
		t.Errorf("path %s, want %s", path, want)
	}
}

func FuzzPathCheck(f *testing.F) {
	paths := NewPaths(tokenSecret, at(tokenTime))
	genuine, expiresAt := paths.Issue("u-1", "S1", pathTTL)
	f.Add(genuine, "u-1", "S1")
	f.Add(genuine, "u-1S", "1")
	f.Add(strings.ToUpper(genuine), "u-1", "S1")
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, path, userID, saleID string) {
		own, _ := paths.Issue(userID, saleID, pathTTL)
		if !paths.Check(own, userID, saleID) {
			t.Errorf("%q is refused to %q in %q", own, userID, saleID)
		}
		// Whatever is taken was issued: no other text stands for it, and it stands for no one else.
		if paths.Check(path, userID, saleID) && path != own {
			t.Errorf("%q is taken from %q in %q, which was issued %q", path, userID, saleID, own)
		}
		if (userID != "u-1" || saleID != "S1") && paths.Check(genuine, userID, saleID) {
			t.Errorf("%q, good until %s, is taken from %q in %q", genuine, expiresAt, userID, saleID)
		}
	})
}

// The MACs are shared: no request may see another's.
func TestPathsAtOnce(t *testing.T) {
	paths := NewPaths(tokenSecret, at(tokenTime))
	start := make(chan struct{})
	var running sync.WaitGroup
	for caller := range 8 {
		running.Go(func() {
			<-start
			for i := range 200 {
				user := fmt.Sprint("u-", caller, "-", i)
				path, _ := paths.Issue(user, "S1", pathTTL)
				if !paths.Check(path, user, "S1") || paths.Check(path, user, "S2") || paths.Check(path, user+"0", "S1") {
					t.Errorf("%s's path %s is taken for another's", user, path)
				}
			}
		})
	}
	close(start)
	running.Wait()
}
