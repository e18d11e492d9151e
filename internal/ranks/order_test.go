package ranks

import (
	"fmt"
	"math"
	"testing"

	"flashsale/test/kit/check"
)

// The ranks of 0 to n-1 are 0 to n-1, each once, and Number is the inverse of Rank.
func TestOrderIsAPermutation(t *testing.T) {
	sizes := []int64{1000, 1 << 10, 1<<10 + 1, 1<<16 - 1}
	for n := range int64(70) {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		for _, seed := range []Hash{{}, ascending(0)} {
			order, taken := Order{seed, n}, make([]bool, n)
			for number := range n {
				rank := order.Rank(number)
				if rank < 0 || rank >= n || taken[rank] {
					t.Fatalf("n %d, number %d: rank %d is outside, or taken", n, number, rank)
				}
				taken[rank] = true
				if got := order.Number(rank); got != number {
					t.Fatalf("n %d: number %d has rank %d, which has number %d", n, number, rank, got)
				}
			}
		}
	}
}

func TestNumbersOutsideKeepTheirPlace(t *testing.T) {
	for _, n := range []int64{-1, 0, 1, 2, 1000} {
		order := Order{ascending(0), n}
		for _, number := range []int64{max(n, 0), max(n, 0) + 1, math.MaxInt64, -1, math.MinInt64} {
			check.Same(t, fmt.Sprintf("n %d: rank of %d", n, number), order.Rank(number), number)
			check.Same(t, fmt.Sprintf("n %d: number of %d", n, number), order.Number(number), number)
		}
	}
}

// Early and late comers have the same chances: chi-square over the ranks of the first and the last tenth of the entries,
// in ten classes each. With 9 degrees of freedom it exceeds 27.9 in one of a thousand fair orders; the seeds are fixed.
func TestOrderFavoursNobody(t *testing.T) {
	const n, share, classes, limit = 100_000, 10_000, 10, 27.9
	for _, seed := range []Hash{{}, ascending(0), Commitment(Hash{})} {
		for _, from := range []int64{0, n - share} {
			var found [classes]float64
			for number := from; number < from+share; number++ {
				found[Order{seed, n}.Rank(number)*classes/n]++
			}
			sum := 0.0
			for _, count := range found {
				sum += (count - share/classes) * (count - share/classes) / (share / classes)
			}
			if sum > limit {
				t.Errorf("seed %s, entries from %d: chi-square is %.1f with %v", seed, from, sum, found)
			}
		}
	}
}

func TestRankAllocatesNothing(t *testing.T) {
	order := Order{ascending(0), 1_000_000}
	check.Same(t, "allocations", testing.AllocsPerRun(100, func() { order.Number(order.Rank(7)) }), 0)
}

// FuzzOrder: Rank stays within 0 to n-1, and Number is its inverse, for all sizes.
func FuzzOrder(f *testing.F) {
	f.Add([]byte("seed"), int64(math.MaxInt64), int64(math.MaxInt64-1))
	f.Add([]byte{}, int64(1<<32+1), int64(1<<32))
	f.Add([]byte{}, int64(0), int64(-1))
	f.Fuzz(func(t *testing.T, seed []byte, n, number int64) {
		order := Order{N: n}
		copy(order.Seed[:], seed)
		rank := order.Rank(number)
		if inside := number >= 0 && number < n; inside && (rank < 0 || rank >= n) || !inside && rank != number {
			t.Errorf("n %d: number %d has rank %d", n, number, rank)
		}
		if got := order.Number(rank); got != number {
			t.Errorf("n %d: number %d has rank %d, which has number %d", n, number, rank, got)
		}
	})
}
