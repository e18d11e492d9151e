// Package ranks computes the public order of a sale's entries, and what proves the order: the root over the entries, the
// seed, and a document by which a line or a draw can be checked. All of it follows encoding version 1, see docs/fairness.md. This
// version is frozen: a change would break proofs that were published.
package ranks

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// rounds is the number of rounds of the Feistel network. Four are enough against somebody who does not know the seed
// (Luby and Rackoff 1988); eight leave a margin and cost little.
const rounds = 8

// Order is the public order of a sale's entries. The entries before the seal have the numbers 0 to N-1. Their ranks are a
// permutation of these numbers that follows from the seed. The rank of an entry after the seal is its number.
//
// The permutation is a Feistel network over the numbers below the smallest power of four that is at least N. It is applied
// again while the result is not below N ("cycle walking": Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002),
// fewer than four times on average. So neither a rank nor its inverse needs a table.
type Order struct {
	Seed [32]byte
	N    int64
}

// Rank returns the rank of an entry by its number.
func (o Order) Rank(number int64) int64 { return o.permute(number, false) }

// Number returns the number of the entry that has a rank. It is the inverse of Rank.
func (o Order) Number(rank int64) int64 { return o.permute(rank, true) }

func (o Order) permute(from int64, inverse bool) int64 {
	if from < 0 || from >= o.N || o.N == 1 {
		return from
	}
	x, n := uint64(from), uint64(o.N) //nolint:gosec // neither is negative
	half := (bits.Len64(n-1) + 1) / 2 // the number of bits in each half of x
	for {
		left, right := x>>half, x&(1<<half-1)
		for i := range byte(rounds) {
			if inverse {
				left, right = right^o.round(rounds-1-i, left, half), left
			} else {
				left, right = right, left^o.round(i, right, half)
			}
		}
		if x = left<<half | right; x < n {
			return int64(x) //nolint:gosec // it is below N
		}
	}
}

// round is the round function: the lowest "half" bits of the first 8 bytes, big-endian, of SHA-256(seed || i || right).
func (o Order) round(i byte, right uint64, half int) uint64 {
	var input [len(o.Seed) + 1 + 8]byte
	copy(input[:], o.Seed[:])
	input[len(o.Seed)] = i
	binary.BigEndian.PutUint64(input[len(o.Seed)+1:], right)
	sum := sha256.Sum256(input[:])
	return binary.BigEndian.Uint64(sum[:]) & (1<<half - 1)
}
