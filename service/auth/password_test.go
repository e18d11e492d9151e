package auth

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"testing"
	"testing/synctest"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func TestPasswords(t *testing.T) {
	passwords := NewPasswords()
	phc := check.Must(passwords.Hash(t.Context(), "correct horse"))
	if !regexp.MustCompile(`^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$`).MatchString(phc) {
		t.Errorf("%q is not in PHC string format", phc)
	}
	check.Same(t, "a second hash is the same", check.Must(passwords.Hash(t.Context(), "correct horse")) == phc, false)
	for password, good := range map[string]bool{
		"correct horse": true, "correct horsf": false, "correct hors": false, "": false, phc: false, "Correct horse": false,
		"correct horse\x00": false,
	} {
		check.Same(t, password, check.Must(passwords.Verify(t.Context(), phc, password)), good)
	}
}

// The hash is at another cost, as the reference implementation makes it.
func TestVerifyForeignHash(t *testing.T) {
	const phc = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
	check.Same(t, "good", check.Must(NewPasswords().Verify(t.Context(), phc, "password")), true)
}

func TestVerifyMalformedHash(t *testing.T) {
	const salt, hash = "$c29tZXNhbHQ", "$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
	for name, phc := range map[string]string{
		"empty":           "",
		"plain text":      "password",
		"bcrypt":          "$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy",
		"argon2i":         "$argon2i$v=19$m=256,t=2,p=1" + salt + hash,
		"another version": "$argon2id$v=16$m=256,t=2,p=1" + salt + hash,
		"no cost":         "$argon2id$v=19$" + salt + hash,
		"a cost missing":  "$argon2id$v=19$m=256,t=2" + salt + hash,
		"no passes":       "$argon2id$v=19$m=256,t=0,p=1" + salt + hash,
		"no lanes":        "$argon2id$v=19$m=256,t=2,p=0" + salt + hash,
		"endless":         "$argon2id$v=19$m=256,t=4000000000,p=1" + salt + hash,
		"boundless":       "$argon2id$v=19$m=4000000000,t=2,p=1" + salt + hash,
		"a broken salt":   "$argon2id$v=19$m=256,t=2,p=1$!" + hash,
		"a broken hash":   "$argon2id$v=19$m=256,t=2,p=1" + salt + "$!",
		"no hash":         "$argon2id$v=19$m=256,t=2,p=1" + salt + "$",
		"a part too many": "$argon2id$v=19$m=256,t=2,p=1" + salt + hash + "$",
	} {
		if good, err := NewPasswords().Verify(t.Context(), phc, "password"); good || !errors.Is(err, errPasswordHash) {
			t.Errorf("%s: good: %v, %v; want an error", name, good, err)
		}
	}
}

// callers are the three calls that hash, which share a bound.
var callers = map[string]func(*Passwords, context.Context) error{
	"Hash": func(p *Passwords, ctx context.Context) error {
		_, err := p.Hash(ctx, "x")
		return err
	},
	"Verify": func(p *Passwords, ctx context.Context) error {
		_, err := p.Verify(ctx, "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAA", "x")
		return err
	},
	"VerifyNothing": func(p *Passwords, ctx context.Context) error { return p.VerifyNothing(ctx, "x") },
}

func TestPasswordsAreBounded(t *testing.T) {
	check.EachInBubble(t, callers, func(t *testing.T, call func(*Passwords, context.Context) error) {
		passwords := NewPasswords()
		for range cap(passwords.running) {
			passwords.running <- struct{}{} // hashings that do not end
			passwords.inside <- struct{}{}
		}
		ctx, leave := context.WithCancel(t.Context())
		waiting := make(chan error, maxWaitingHashings)
		for range maxWaitingHashings {
			go func() { waiting <- call(passwords, ctx) }()
		}
		synctest.Wait()
		check.Error(t, "one too many", call(passwords, t.Context()), model.ErrUnavailable)
		leave()
		for range maxWaitingHashings {
			check.Error(t, "left while waiting", <-waiting, context.Canceled)
		}
		<-passwords.running
		<-passwords.inside
		check.Error(t, "with a place free", call(passwords, t.Context()), nil)
		busy := cap(passwords.running) - 1
		check.Same(t, "running and inside", []int{len(passwords.running), len(passwords.inside)}, []int{busy, busy})
	})
}

// Hashing takes at most half of the cores, or the only one.
func TestHashingsLeaveCores(t *testing.T) {
	for cores, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 8: maxHashings, 128: maxHashings} {
		check.Same(t, fmt.Sprint("hashings at once on ", cores, " cores"), hashings(cores), want)
	}
	check.Same(t, "hashings at once here", cap(NewPasswords().running), hashings(runtime.GOMAXPROCS(0)))
}

// VerifyNothing costs as much as a hashing. The test measures memory, which is most of the cost and steadier than time.
func TestVerifyNothingSpendsTheSame(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	check.Done(NewPasswords().VerifyNothing(t.Context(), "x"))
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used < argonMemoryKiB<<10 {
		t.Errorf("%d bytes were used, a hashing takes %d", used, argonMemoryKiB<<10)
	}
}

// No stored hash makes a log-in cost more work or memory than the bounds allow.
func FuzzPasswordHash(f *testing.F) {
	const salt, hash = "$c29tZXNhbHQ", "$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
	for _, cost := range []string{
		"m=19456,t=2,p=1", "m=0,t=1,p=1", "m=65537,t=1,p=1", "m=8,t=17,p=1", "m=8,t=1,p=256", "m=-1,t=1,p=1", "m=8,t=1,p=1,x=1",
		"m=8, t=1,p=1", "",
	} {
		f.Add("$argon2id$v=19$" + cost + salt + hash)
	}
	f.Add("$argon2id$v=19$m=8,t=1,p=1$$")
	f.Fuzz(func(t *testing.T, phc string) {
		a, hash, err := parsePHC(phc)
		if err == nil &&
			(a.memoryKiB > maxStoredMemoryKiB || a.passes == 0 || a.passes > maxStoredPasses || a.lanes == 0 || len(hash) == 0) {
			t.Errorf("%q is accepted as %+v with a hash of %d bytes", phc, a, len(hash))
		}
	})
}
