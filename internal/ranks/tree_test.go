package ranks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"flashsale/test/kit/check"
)

// tagsOf makes tags of n entries.
func tagsOf(n int) []Hash {
	tags := make([]Hash, n)
	for i := range tags {
		tags[i] = Tag([]byte("key"), fmt.Sprint("u", i))
	}
	return tags
}

// The leaves and roots with which implementations of Certificate Transparency (RFC 6962) are tested.
func TestRootsOfCertificateTransparency(t *testing.T) {
	leaves := []string{"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"}
	roots := []string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
		"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
		"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
		"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
		"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
		"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
		"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
		"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
	}
	var root Root
	for i, want := range roots {
		check.Same(t, fmt.Sprintf("root of %d leaves", i), root.Sum().String(), want)
		if i < len(leaves) {
			root.add(sha256.Sum256(append([]byte{leafPrefix}, check.Must(hex.DecodeString(leaves[i]))...)))
		}
	}
}

// Every entry of a tree of any shape has a path to the root. verify refuses the same path for another number, tag, root
// or size, and a path with a hash added, changed or left out.
func TestPaths(t *testing.T) {
	for n := range 40 {
		tags := tagsOf(n)
		root := RootOf(tags)
		for i, tag := range tags {
			number := int64(i)
			path := Path(tags, number)
			if !verify(root, int64(n), number, tag, path) {
				t.Errorf("entry %d of %d is not under the root", number, n)
			}
			for name, wrong := range map[string]bool{
				"another tag":         verify(root, int64(n), number, Hash{}, path),
				"another root":        verify(Hash{}, int64(n), number, tag, path),
				"the next number":     verify(root, int64(n), number+1, tag, path),
				"the number before":   verify(root, int64(n), number-1, tag, path),
				"no entries":          verify(root, 0, number, tag, path),
				"fewer entries":       verify(root, number, number, tag, path),
				"one hash more":       verify(root, int64(n), number, tag, append(slices.Clone(path), Hash{})),
				"a node as the entry": n > 1 && verify(root, int64(n), number, leaf(number, tag), path[1:]),
			} {
				if wrong {
					t.Errorf("entry %d of %d: %s is accepted", number, n, name)
				}
			}
			for at := range path {
				changed := slices.Clone(path)
				changed[at][0] ^= 1
				if verify(root, int64(n), number, tag, changed) || verify(root, int64(n), number, tag, slices.Delete(slices.Clone(path), at, at+1)) {
					t.Errorf("entry %d of %d: a path with hash %d changed or missing is accepted", number, n, at)
				}
			}
		}
	}
}

func TestHashText(t *testing.T) {
	want := ascending(0xa0)
	var got Hash
	check.NoError(t, got.UnmarshalText(check.Must(want.MarshalText())))
	check.Same(t, "a hash, written and read", got, want)
	check.Same(t, "digits", want.String()[:6], "a0a1a2")
	for name, text := range map[string]string{"short": "a0", "long": want.String() + "00", "no digits": want.String()[:63] + "x"} {
		check.Same(t, name+" is an error", got.UnmarshalText([]byte(text)) != nil, true)
	}
}

// The seed depends on each of its three parts.
func TestSeed(t *testing.T) {
	seen := map[Hash]bool{}
	for _, seed := range []Hash{
		Seed(Hash{}, Hash{}, nil), Seed(ascending(1), Hash{}, nil), Seed(Hash{}, ascending(1), nil),
		Seed(Hash{}, Hash{}, make([]byte, 32)), Seed(Hash{}, Hash{}, secret[:]),
	} {
		check.Same(t, seed.String()+" is seen twice", seen[seed], false)
		seen[seed] = true
	}
}
