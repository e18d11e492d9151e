package auth

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit/check"
)

const pathTTL = time.Minute

func TestPathRoundTrip(t *testing.T) {
	path, expiresAt := NewPaths(tokenSecret, at(tokenTime)).Issue("u-1", "S1", pathTTL)
	check.Same(t, "expiry", expiresAt, tokenTime.Add(pathTTL).Truncate(time.Second))
	// Instances of two versions must agree on the form. The value was computed without this code.
	check.Same(t, "path", path, "6af4c97cc71ca7048d1fe595efcbe9a8")
	for now, want := range map[time.Time]bool{
		tokenTime: true, expiresAt.Add(-1): true, expiresAt: false, expiresAt.Add(24 * time.Hour): false,
	} {
		check.Same(t, fmt.Sprint("valid at ", now), NewPaths(tokenSecret, at(now)).Check(path, "u-1", "S1"), want)
	}
	check.Same(t, "valid under another secret", NewPaths([]byte("another secret"), at(tokenTime)).Check(path, "u-1", "S1"), false)
}

func TestPathRefuses(t *testing.T) {
	paths := NewPaths(tokenSecret, at(tokenTime))
	path, _ := paths.Issue("u-1", "S1", pathTTL)
	wrong := []string{
		"", path[:31], path + "0", path + path, strings.ToUpper(path), strings.ToUpper(path[:8]) + path[8:], "zzzzzzzz" + path[8:],
		"+" + path[1:], path[:8] + strings.Repeat("0", 24), "ffffffff" + path[8:], "00000000" + path[8:],
	}
	for i, digit := range path {
		for _, changed := range "0123456789abcdef" {
			if changed != digit {
				wrong = append(wrong, path[:i]+string(changed)+path[i+1:])
			}
		}
	}
	for _, text := range wrong {
		check.Same(t, fmt.Sprintf("%q is valid", text), paths.Check(text, "u-1", "S1"), false)
	}
}

// A path is valid for its user and sale only, and no other text is valid for them. The seeds are pairs of ids that are equal
// as a sum or when joined.
func FuzzPathCheck(f *testing.F) {
	paths := NewPaths(tokenSecret, at(tokenTime))
	genuine, _ := paths.Issue("u-1", "S1", pathTTL)
	f.Add(genuine, "u-1", "S1", "u-1S", "1")
	f.Add(strings.ToUpper(genuine), "u-1", "S1", "u-2", "S1")
	f.Add("", "", "", "u-1", "S2")
	f.Add("", "5", "3", "4", "4")
	f.Add("", "53", "", "5", "3")
	f.Add("", "5", "3", "3", "5")
	f.Add("", "u:1", "S1", "u", "1:S1")
	f.Add("", "u\x00\x00\x00\x00\x00\x00\x00\x02", "S1", "u", "\x02S1")
	f.Fuzz(func(t *testing.T, path, user, sale, otherUser, otherSale string) {
		own, _ := paths.Issue(user, sale, pathTTL)
		other, _ := paths.Issue(otherUser, otherSale, pathTTL)
		equal := user == otherUser && sale == otherSale
		check.Same(t, "the own path is valid", paths.Check(own, user, sale), true)
		check.Same(t, "another text is valid", paths.Check(path, user, sale), path == own)
		check.Same(t, "the path is the other's", own == other, equal)
		check.Same(t, "the other's path is valid", paths.Check(other, user, sale), equal)
	})
}

// Concurrent requests share the MACs, and must not see each other's.
func TestPathsAtOnce(t *testing.T) {
	paths := NewPaths(tokenSecret, at(tokenTime))
	check.Together(8, func(caller int) {
		for i := range 200 {
			user := fmt.Sprint("u-", caller, "-", i)
			path, _ := paths.Issue(user, "S1", pathTTL)
			if !paths.Check(path, user, "S1") || paths.Check(path, user, "S2") || paths.Check(path, user+"0", "S1") {
				t.Errorf("%s's path %s is valid for another user or sale", user, path)
			}
		}
	})
}
