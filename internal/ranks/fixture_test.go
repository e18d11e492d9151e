package ranks

import (
	"bytes"

	"flashsale/test/kit/check"
)

// secret is the secret of the documents in tests: the bytes 0x40 to 0x5f.
var secret = ascending(0x40)

// ascending returns 32 bytes that count up from the first.
func ascending(first byte) (h Hash) {
	for i := range h {
		h[i] = first + byte(i)
	}
	return h
}

// verify reports whether an entry, by its number and tag, is one of the n entries under a root (RFC 9162, section
// 2.1.3.2).
func verify(root Hash, n, number int64, tag Hash, path []Hash) bool {
	if number < 0 || number >= n {
		return false
	}
	sum := leaf(number, tag)
	for last := n - 1; last > 0; last, number = last/2, number/2 {
		if number == last && number%2 == 0 {
			continue // no partner on this level
		}
		if len(path) == 0 {
			return false
		}
		if number%2 == 1 {
			sum = node(path[0], sum)
		} else {
			sum = node(sum, path[0])
		}
		path = path[1:]
	}
	return len(path) == 0 && sum == root
}

// line makes a valid document of a line.
func line(tags []Hash, quantities, void []int64) *Document {
	doc := &Document{Void: void, Quantities: quantities, Tags: tags}
	root := RootOf(tags)
	doc.Head = Head{
		Version: Version, Sale: "S1", Mode: Line, N: int64(len(tags)), Commitment: Commitment(secret), Root: root, Secret: secret,
	}
	if doc.N > 0 {
		doc.Seed = new(Seed(secret, root, nil))
	}
	return doc
}

// draw makes a valid document of a draw.
func draw(tags []Hash, quantities, void []int64, units int64) *Document {
	doc := line(tags, quantities, void)
	doc.Mode, doc.Units = Draw, &units
	doc.Winners = Winners(doc.Order(), units, quantities, void)
	return doc
}

func lists(doc *Document) Lists {
	l := Lists{Void: All(doc.Void), Quantities: All(doc.Quantities), Tags: All(doc.Tags)}
	if doc.Mode == Draw {
		l.Winners = All(doc.Winners)
	}
	return l
}

func encode(doc *Document) []byte {
	var out bytes.Buffer
	check.Done(Write(&out, doc.Head, lists(doc)))
	return out.Bytes()
}
