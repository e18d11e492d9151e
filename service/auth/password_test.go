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
)

func TestPasswords(t *testing.T) {
	passwords := NewPasswords()
	phc := must(passwords.Hash(t.Context(), "correct horse"))
	if !regexp.MustCompile(`^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$`).MatchString(phc) {
		t.Errorf("%q is not in PHC string format", phc)
	}
	same(t, "a second hash is the same", must(passwords.Hash(t.Context(), "correct horse")) == phc, false)
	for password, good := range map[string]bool{
		"correct horse": true, "correct horsf": false, "correct hors": false, "": false, phc: false, "Correct horse": false,
		"correct horse\x00": false,
	} {
		same(t, password, must(passwords.Verify(t.Context(), phc, password)), good)
	}
}

// The hash is at another cost, as the reference implementation makes it.
func TestVerifyForeignHash(t *testing.T) {
	const phc = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
	same(t, "good", must(NewPasswords().Verify(t.Context(), phc, "password")), true)
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
	for name, call := range callers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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

				if err := call(passwords, t.Context()); !errors.Is(err, model.ErrUnavailable) {
					t.Errorf("one too many: %v, want %v", err, model.ErrUnavailable)
				}
				leave()
				for range maxWaitingHashings {
					if err := <-waiting; !errors.Is(err, context.Canceled) {
						t.Errorf("left while waiting: %v, want %v", err, context.Canceled)
					}
				}

				<-passwords.running
				<-passwords.inside
				if err := call(passwords, t.Context()); err != nil {
					t.Errorf("with a place free: %v", err)
				}
				if busy := cap(passwords.running) - 1; len(passwords.running) != busy || len(passwords.inside) != busy {
					t.Errorf("%d running, %d inside: a place was not given back", len(passwords.running), len(passwords.inside))
				}
			})
		})
	}
}

// Hashing takes at most half of the cores, or the only one.
func TestHashingsLeaveCores(t *testing.T) {
	for cores, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 8: maxHashings, 128: maxHashings} {
		same(t, fmt.Sprint("hashings at once on ", cores, " cores"), hashings(cores), want)
	}
	same(t, "hashings at once here", cap(NewPasswords().running), hashings(runtime.GOMAXPROCS(0)))
}

// VerifyNothing costs as much as a hashing. The test measures memory, which is most of the cost and steadier than time.
func TestVerifyNothingSpendsTheSame(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := NewPasswords().VerifyNothing(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
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
