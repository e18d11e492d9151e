package browser

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"flashsale/internal/ranks"
	"flashsale/test/kit/check"
	"flashsale/web"
)

// inRanks evaluates an expression in which m is the module ranks.js and data is a value of the test.
func inRanks[T any](w *window, data any, expression string) T {
	w.t.Helper()
	module := check.Must(check.Must(web.NewAssets()).URL("ranks.js"))
	return js[T](w, fmt.Sprintf(`(async () => { const m = await import(%q); const data = %s; return %s; })()`,
		module, check.Must(json.Marshal(data)), expression))
}

// The page computes the same ranks, seeds and roots as the engine, for sizes up to 2^53.
func TestRanksInThePage(t *testing.T) {
	t.Parallel()
	w := serve(t).open(desktop, "/")

	const most = 1 << 53
	random := rand.New(rand.NewPCG(1, 2))
	hash := func() (h ranks.Hash) {
		for i := range h {
			h[i] = byte(random.Uint32())
		}
		return h
	}
	type triple struct {
		Seed      ranks.Hash
		N, Number int64
	}
	var triples []triple
	var want []int64
	add := func(n, number int64) {
		seed := hash()
		triples = append(triples, triple{seed, n, number})
		want = append(want, ranks.Order{Seed: seed, N: n}.Rank(number))
	}
	for n := range int64(20) {
		for number := range n + 2 {
			add(n, number)
		}
	}
	for bit := range 53 {
		for _, n := range []int64{1 << bit, 1<<bit + 1, 1<<(bit+1) - 1} {
			for range 16 {
				add(n, random.Int64N(n))
			}
			add(n, n-1)
		}
	}
	add(most, most-1)
	got := inRanks[[]int64](w, triples, `await Promise.all(data.map(({ Seed, N, Number }) => m.rank(Seed, N, Number)))`)
	check.Same(t, "ranks", len(got), len(want))
	for i, rank := range got {
		if rank != want[i] {
			t.Fatalf("%+v has rank %d, want %d", triples[i], rank, want[i])
		}
	}

	secret, root, randomness := hash(), hash(), hash()
	check.Same(t, "commitment", inRanks[string](w, secret, `await m.commitmentOf(data)`), ranks.Commitment(secret).String())
	parts := []ranks.Hash{secret, root, randomness}
	check.Same(t, "seed", inRanks[string](w, parts[:2], `await m.seedOf(...data)`), ranks.Seed(secret, root, nil).String())
	check.Same(t, "seed with a beacon", inRanks[string](w, parts, `await m.seedOf(...data)`), ranks.Seed(secret, root, randomness[:]).String())
}

// The page accepts the path of every entry of a tree, and none with a change.
func TestInclusionInThePage(t *testing.T) {
	t.Parallel()
	w := serve(t).open(desktop, "/")

	type claim struct {
		What      string
		Root      ranks.Hash
		N, Number int64
		Tag       ranks.Hash
		Path      []ranks.Hash
	}
	var claims []claim
	for n := range int64(12) {
		tags := make([]ranks.Hash, n)
		for i := range tags {
			tags[i] = ranks.Tag([]byte("key"), fmt.Sprint(i))
		}
		root := ranks.RootOf(tags)
		for number := range n {
			tag, path := tags[number], ranks.Path(tags, number)
			claims = append(claims,
				claim{"right", root, n, number, tag, path},
				claim{"another root", ranks.Hash{}, n, number, tag, path},
				claim{"another tag", root, n, number, ranks.Hash{}, path},
				claim{"the next number", root, n, number + 1, tag, path},
				claim{"a negative number", root, n, number - n, tag, path},
				claim{"a hash more", root, n, number, tag, append(slices.Clone(path), ranks.Hash{})},
			)
			if len(path) > 0 {
				claims = append(claims, claim{"a hash less", root, n, number, tag, path[1:]})
			}
		}
	}
	got := inRanks[[]bool](w, claims, `await Promise.all(data.map((c) => m.verifyInclusion(c.Root, c.N, c.Number, c.Tag, c.Path)))`)
	check.Same(t, "claims", len(got), len(claims))
	for i, c := range claims {
		check.Same(t, fmt.Sprintf("entry %d of %d is accepted, %s", c.Number, c.N, c.What), got[i], c.What == "right")
	}
}
