package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/crypto/argon2"

	"flashsale/model"
)

// The cost of a new hash: OWASP's minimum for argon2id, which takes one core some 40 ms.
const (
	argonMemoryKiB = 19 << 10
	argonPasses    = 2
	argonLanes     = 1
	argonSaltBytes = 16
	argonHashBytes = 32
)

const (
	// maxHashings is the most passwords that are hashed at the same time. A new hash takes one core and 19 MiB.
	maxHashings        = 2
	maxWaitingHashings = 32 // the most passwords that wait for their turn
	// The most that a stored hash may ask for: enough to raise the cost later, too little to exhaust the host.
	maxStoredMemoryKiB, maxStoredPasses = 64 << 10, 16
)

var errPasswordHash = errors.New("stored password hash is malformed")

// Passwords hashes passwords with argon2id, a bounded number at a time. The error of a method wraps model.ErrUnavailable if too
// many passwords wait already, and ctx's error if ctx ends during the wait.
type Passwords struct {
	running, inside chan struct{}
}

// NewPasswords creates a Passwords. Make only one in a process, since each has its own bound.
func NewPasswords() *Passwords {
	running := hashings(runtime.GOMAXPROCS(0))
	return &Passwords{running: make(chan struct{}, running), inside: make(chan struct{}, running+maxWaitingHashings)}
}

func hashings(cores int) int { return max(1, min(maxHashings, cores/2)) }

// Hash returns the password's hash in PHC string format, with a new salt.
func (p *Passwords) Hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, argonSaltBytes)
	_, _ = rand.Read(salt) // never returns an error: a failure ends the process
	a := argon{memoryKiB: argonMemoryKiB, passes: argonPasses, lanes: argonLanes, salt: salt}
	hash, err := p.derive(ctx, password, a, argonHashBytes)
	if err != nil {
		return "", err
	}
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, a.memoryKiB, a.passes, a.lanes, encode(salt), encode(hash)), nil
}

// Verify reports whether phc, a hash in PHC string format, is the hash of the password. A malformed phc is an error.
func (p *Passwords) Verify(ctx context.Context, phc, password string) (bool, error) {
	a, want, err := parsePHC(phc)
	if err != nil {
		return false, err
	}
	got, err := p.derive(ctx, password, a, len(want))
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(got, want) == 1, nil
}

// VerifyNothing takes about as long as Verify of a new hash, so that the time of an answer does not tell that a name is unknown.
func (p *Passwords) VerifyNothing(ctx context.Context, password string) error {
	_, err := p.Hash(ctx, password)
	return err
}

// argon is the input of a hash besides the password.
type argon struct {
	memoryKiB, passes uint32
	lanes             uint8
	salt              []byte
}

func (p *Passwords) derive(ctx context.Context, password string, a argon, length int) ([]byte, error) {
	select {
	case p.inside <- struct{}{}:
		defer func() { <-p.inside }()
	default:
		return nil, fmt.Errorf("hash password: too many at a time: %w", model.ErrUnavailable)
	}
	select {
	case p.running <- struct{}{}:
		defer func() { <-p.running }()
	case <-ctx.Done():
		return nil, fmt.Errorf("hash password: %w", ctx.Err())
	}
	return argon2.IDKey([]byte(password), a.salt, a.passes, a.memoryKiB, a.lanes, uint32(length)), nil //nolint:gosec // a short slice's length
}

// parsePHC parses $argon2id$v=19$m=…,t=…,p=…$salt$hash. It takes the costs from the string, so that stored hashes
// stay valid when the costs of new hashes change.
func parsePHC(phc string) (a argon, hash []byte, err error) {
	parts := strings.Split(phc, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return argon{}, nil, errPasswordHash
	}
	_, costErr := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &a.memoryKiB, &a.passes, &a.lanes)
	salt, saltErr := base64.RawStdEncoding.DecodeString(parts[4])
	hash, hashErr := base64.RawStdEncoding.DecodeString(parts[5])
	if err := errors.Join(costErr, saltErr, hashErr); err != nil {
		return argon{}, nil, fmt.Errorf("%w: %w", errPasswordHash, err)
	}
	a.salt = salt
	// The package argon2 can't make an empty hash: it panics.
	if len(hash) == 0 || a.lanes == 0 || a.passes == 0 || a.passes > maxStoredPasses || a.memoryKiB > maxStoredMemoryKiB {
		return argon{}, nil, errPasswordHash
	}
	return a, hash, nil
}
