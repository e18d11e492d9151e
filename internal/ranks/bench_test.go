package ranks

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"flashsale/test/kit/check"
)

// million is a draw of a million entries for ten thousand units.
func million() *Document {
	const n = 1_000_000
	tags, quantities := make([]Hash, n), make([]int64, n)
	for i := range tags {
		tags[i], quantities[i] = Tag([]byte("key"), string(rune(i))), int64(1+i%3)
	}
	return draw(tags, quantities, []int64{5, 70, 999_999}, 10_000)
}

func BenchmarkRank(b *testing.B) {
	for _, n := range []int64{1_000_000, 1<<20 + 1} { // the second needs the most repetitions for its size
		order := Order{N: n}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for i := range b.N {
				order.Rank(int64(i) % n)
			}
		})
	}
}

// BenchmarkVerify reads and checks a document of a million entries.
func BenchmarkVerify(b *testing.B) {
	file := encode(million())
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		check.NoError(b, Check(check.Must(Read(bytes.NewReader(file))), nil))
	}
}

func BenchmarkWrite(b *testing.B) {
	doc := million()
	for b.Loop() {
		check.NoError(b, Write(io.Discard, doc.Head, lists(doc)))
	}
}

func BenchmarkTree(b *testing.B) {
	doc := million()
	for b.Loop() {
		Path(doc.Tags, 0)
	}
}
