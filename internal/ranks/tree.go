package ranks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Hash is a SHA-256, an HMAC-SHA256 or a secret of the same size. Its text is 64 hex digits.
type Hash [32]byte

// String returns the hex digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText returns the hex digits.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText reads 64 hex digits. It returns an error for any other text.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(h)) {
		return fmt.Errorf("has %d characters, want %d hex digits", len(text), hex.EncodedLen(len(h)))
	}
	if _, err := hex.Decode(h[:], text); err != nil {
		return errors.New("has a character that is no hex digit")
	}
	return nil
}

// Commitment returns the SHA-256 of the secret.
func Commitment(secret Hash) Hash { return sha256.Sum256(secret[:]) }

// Tag returns the HMAC-SHA256 of a user's id under the sale's key.
func Tag(key []byte, userID string) Hash { return mac(key, []byte(userID)) }

// Seed returns the seed of the order: HMAC-SHA256(secret, root || randomness). Without a beacon, "randomness" is nil.
func Seed(secret, root Hash, randomness []byte) Hash { return mac(secret[:], root[:], randomness) }

func mac(key []byte, parts ...[]byte) (sum Hash) {
	h := hmac.New(sha256.New, key)
	for _, part := range parts {
		h.Write(part)
	}
	h.Sum(sum[:0])
	return sum
}

// The tree is the Merkle tree of RFC 6962, section 2.1. The prefixes of the hashed data keep a leaf from passing as a node.
const (
	leafPrefix = 0
	nodePrefix = 1
)

// leaf returns the hash of an entry's leaf. The data of the leaf is the number as 8 bytes, big-endian, and the tag.
func leaf(number int64, tag Hash) Hash {
	var input [1 + 8 + len(tag)]byte
	input[0] = leafPrefix
	binary.BigEndian.PutUint64(input[1:], uint64(number)) //nolint:gosec // no number is negative
	copy(input[1+8:], tag[:])
	return sha256.Sum256(input[:])
}

func node(left, right Hash) Hash {
	var input [1 + 2*len(left)]byte
	input[0] = nodePrefix
	copy(input[1:], left[:])
	copy(input[1+len(left):], right[:])
	return sha256.Sum256(input[:])
}

// Root computes the root over entries that are added in the order of their numbers. It needs the same memory for few or many
// entries. The zero value is a tree without entries.
type Root struct {
	n     int64
	trees [63]Hash // trees[k] is the root of a full tree of 2^k leaves, if bit k of n is set
}

// Add adds the entry with the next number, from 0 on, by its tag.
func (r *Root) Add(tag Hash) { r.add(leaf(r.n, tag)) }

func (r *Root) add(hash Hash) {
	k := 0
	for ; r.n>>k&1 == 1; k++ {
		hash = node(r.trees[k], hash)
	}
	r.trees[k] = hash
	r.n++
}

// Sum returns the root over the entries that were added so far. Without entries it is the SHA-256 of nothing.
func (r *Root) Sum() Hash {
	if r.n == 0 {
		return sha256.Sum256(nil)
	}
	k := bits.TrailingZeros64(uint64(r.n)) //nolint:gosec // it is not negative
	sum := r.trees[k]
	for k++; r.n>>k != 0; k++ {
		if r.n>>k&1 == 1 {
			sum = node(r.trees[k], sum)
		}
	}
	return sum
}

// RootOf returns the root over the entries with these tags, in the order of their numbers.
func RootOf(tags []Hash) Hash {
	var root Root
	for _, tag := range tags {
		root.Add(tag)
	}
	return root.Sum()
}

// Path returns the audit path of an entry (RFC 6962, section 2.1.1): from the leaves upwards, the hashes that, with the entry's
// leaf, give the root over the tags. It is empty if there is only one entry. "number" must be less than len(tags).
func Path(tags []Hash, number int64) []Hash {
	level := make([]Hash, len(tags)) // the leaves first; each level is half as long as the one before, rounded up
	for i, tag := range tags {
		level[i] = leaf(int64(i), tag)
	}
	path := []Hash{}
	for ; len(level) > 1; number /= 2 {
		if sibling := number ^ 1; sibling < int64(len(level)) {
			path = append(path, level[sibling])
		}
		above := level[:0]
		for pair := range slices.Chunk(level, 2) {
			if len(pair) == 2 {
				pair[0] = node(pair[0], pair[1])
			}
			above = append(above, pair[0])
		}
		level = above
	}
	return path
}
