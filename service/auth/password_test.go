package auth

import (
	"context"
	"errors"
	"regexp"
	"runtime"
	"testing"
	"testing/synctest"

	"flashsale/model"
)

func TestPasswords(t *testing.T) {
	passwords := NewPasswords()
	phc, err := passwords.Hash(t.Context(), "correct horse")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$`).MatchString(phc) {
		t.Errorf("%q is not in PHC string format", phc)
	}
	tests := map[string]struct {
		password string
		good     bool
	}{
		"the password":     {"correct horse", true},
		"another":          {"correct horsf", false},
		"its beginning":    {"correct hors", false},
		"none":             {"", false},
		"the hash itself":  {phc, false},
		"in another case":  {"Correct horse", false},
		"with a null byte": {"correct horse\x00", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if good, err := passwords.Verify(t.Context(), phc, tc.password); err != nil || good != tc.good {
				t.Errorf("good: %v, %v; want %v", good, err, tc.good)
			}
		})
	}
}

func TestPasswordsAreSalted(t *testing.T) {
	passwords := NewPasswords()
	first, err1 := passwords.Hash(t.Context(), "the same")
	second, err2 := passwords.Hash(t.Context(), "the same")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if first == second {
		t.Errorf("one password gave %q twice", first)
	}
}

// TestVerifyForeignHash takes a hash at another cost, as the reference implementation makes it.
func TestVerifyForeignHash(t *testing.T) {
	const phc = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
	if good, err := NewPasswords().Verify(t.Context(), phc, "password"); err != nil || !good {
		t.Errorf("good: %v, %v; want true", good, err)
	}
}

func TestVerifyMalformedHash(t *testing.T) {
	const salt, hash = "$c29tZXNhbHQ", "$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
	tests := map[string]string{
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
	}
	for name, phc := range tests {
		t.Run(name, func(t *testing.T) {
			if good, err := NewPasswords().Verify(t.Context(), phc, "password"); good || !errors.Is(err, errPasswordHash) {
				t.Errorf("good: %v, %v; want an error", good, err)
			}
		})
	}
}

// callers are the three ways in; each must keep to the bound.
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
					passwords.running <- struct{}{} // so many hashings that don't end
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
					t.Errorf("%d running, %d inside; a place was not given back", len(passwords.running), len(passwords.inside))
				}
			})
		})
	}
}

// However few cores there are, hashing takes no more than half of them, but for a single one.
func TestHashingsLeaveCores(t *testing.T) {
	for cores, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 8: maxHashings, 128: maxHashings} {
		if got := hashings(cores); got != want {
			t.Errorf("%d at once on %d cores, want %d", got, cores, want)
		}
	}
	if got, want := cap(NewPasswords().running), hashings(runtime.GOMAXPROCS(0)); got != want {
		t.Errorf("%d at once here, want %d", got, want)
	}
}

// TestVerifyNothingSpendsTheSame goes by the memory, most of a hashing's cost and steadier than its time.
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
