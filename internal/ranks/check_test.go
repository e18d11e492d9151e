package ranks

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/cloudflare/circl/sign/bls"

	"flashsale/test/kit/check"
)

// beaconKey makes the key of a beacon, and the beacon's round 7.
func beaconKey() (key []byte, round *Beacon) {
	private := check.Must(bls.KeyGen[bls.KeyG2SigG1](bytes.Repeat([]byte{1}, 32), nil, nil))
	key = check.Must(private.PublicKey().MarshalBinary())
	message := sha256.Sum256(binary.BigEndian.AppendUint64(nil, 7))
	signature := bls.Sign(private, message[:])
	return key, &Beacon{PublicKey: bytes.Clone(key), Round: 7, Signature: signature, Randomness: sha256.Sum256(signature)}
}

// drawn makes a draw of ten entries for six units, with a beacon.
func drawn(t *testing.T) (doc *Document, key []byte) {
	t.Helper()
	doc = draw(tagsOf(10), []int64{1, 2, 3, 1, 2, 3, 1, 2, 3, 1}, []int64{2, 5}, 6)
	key, doc.Beacon = beaconKey()
	*doc.Seed = Seed(secret, doc.Root, doc.Beacon.Randomness[:])
	doc.Winners = Winners(doc.Order(), *doc.Units, doc.Quantities, doc.Void)
	if len(doc.Winners) < 3 || len(doc.Winners) == 10 {
		t.Fatalf("the winners are %d", doc.Winners)
	}
	check.NoError(t, Check(doc, key))
	return doc, key
}

// Each change of a part is found, and the error names the part.
func TestCheckFindsEachChange(t *testing.T) {
	type change struct {
		make func(doc *Document)
		says string
	}
	check.Each(t, map[string]change{
		"another secret":       {func(doc *Document) { doc.Secret[0]++ }, "the commitment"},
		"another commitment":   {func(doc *Document) { doc.Commitment[0]++ }, "the commitment"},
		"another root":         {func(doc *Document) { doc.Root[0]++ }, "the root"},
		"another tag":          {func(doc *Document) { doc.Tags[3][0]++ }, "the root"},
		"two tags swapped":     {func(doc *Document) { doc.Tags[3], doc.Tags[4] = doc.Tags[4], doc.Tags[3] }, "the root"},
		"an entry left out":    {func(doc *Document) { doc.N--; doc.Tags = doc.Tags[:9] }, "the root"},
		"a stranger's beacon":  {func(doc *Document) { doc.Beacon.PublicKey[0]++ }, "not the trusted one"},
		"another round":        {func(doc *Document) { doc.Beacon.Round++ }, "the beacon"},
		"another signature":    {func(doc *Document) { doc.Beacon.Signature[9]++ }, "the beacon"},
		"another randomness":   {func(doc *Document) { doc.Beacon.Randomness[0]++ }, "the randomness"},
		"a beacon left out":    {func(doc *Document) { doc.Beacon = nil }, "the seed"},
		"another seed":         {func(doc *Document) { doc.Seed[0]++ }, "the seed"},
		"a winner left out":    {func(doc *Document) { doc.Winners = doc.Winners[:len(doc.Winners)-1] }, "the winners"},
		"a winner too many":    {func(doc *Document) { doc.Winners = append(doc.Winners, 2) }, "the winners"},
		"two winners swapped":  {func(doc *Document) { slices.Reverse(doc.Winners) }, "the winners"},
		"a winner who is void": {func(doc *Document) { doc.Winners[0] = 2 }, "the winners"},
		"more units":           {func(doc *Document) { *doc.Units = 100 }, "the winners"},
		"fewer units":          {func(doc *Document) { *doc.Units-- }, "the winners"},
		"another quantity":     {func(doc *Document) { doc.Quantities[doc.Winners[0]] = 100 }, "the winners"},
		"a winner made void":   {func(doc *Document) { doc.Void = doc.Winners[:1] }, "the winners"},
	}, func(t *testing.T, tc change) {
		doc, key := drawn(t)
		tc.make(doc)
		if err := Check(doc, key); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("the error is %v, want one about %s", err, tc.says)
		}
	})
}

func TestCheckOfALine(t *testing.T) {
	for name, doc := range map[string]*Document{
		"a line":                 line(tagsOf(5), []int64{1, 1, 1, 1, 1}, []int64{4}),
		"a line without entries": line(nil, nil, nil),
		"a draw without entries": draw(nil, nil, nil, 5),
		"a draw without units":   draw(tagsOf(2), []int64{1, 1}, nil, 0),
	} {
		check.Error(t, name, Check(doc, nil), nil)
		if doc.Mode == Draw {
			doc.Winners = []int64{0}
			check.Same(t, name+" has no winners", Check(doc, nil) != nil, true)
		}
	}
}

// The ranks 0 to 4 have the numbers of by.
func TestWinners(t *testing.T) {
	order := Order{N: 5}
	var by [5]int64
	for rank := range by {
		by[rank] = order.Number(int64(rank))
	}
	// entries gives each rank its quantity; 0 makes it void.
	entries := func(ofRank ...int64) (quantities, void []int64) {
		quantities = make([]int64, len(ofRank))
		for rank, quantity := range ofRank {
			quantities[by[rank]] = max(quantity, 1)
			if quantity == 0 {
				void = append(void, by[rank])
			}
		}
		slices.Sort(void)
		return quantities, void
	}
	for name, tc := range map[string]struct {
		units      int64
		quantities []int64
		want       []int64 // ranks
	}{
		"the first win":                   {2, []int64{1, 1, 1, 1, 1}, []int64{0, 1}},
		"all win":                         {9, []int64{1, 1, 1, 1, 1}, []int64{0, 1, 2, 3, 4}},
		"void ones are passed over":       {2, []int64{0, 1, 0, 1, 1}, []int64{1, 3}},
		"all are void":                    {2, []int64{0, 0, 0, 0, 0}, nil},
		"a large one is passed over":      {3, []int64{2, 2, 1, 1, 1}, []int64{0, 2}},
		"all or nothing":                  {3, []int64{4, 4, 4, 4, 4}, nil},
		"one that fits exactly":           {3, []int64{4, 3, 1, 1, 1}, []int64{1}},
		"units may be left":               {4, []int64{3, 2, 2, 2, 2}, []int64{0}},
		"a large one may fit after a gap": {5, []int64{4, 2, 2, 0, 1}, []int64{0, 4}},
		"no units":                        {0, []int64{1, 1, 1, 1, 1}, nil},
	} {
		quantities, void := entries(tc.quantities...)
		want := []int64{}
		for _, rank := range tc.want {
			want = append(want, by[rank])
		}
		check.Same(t, name, Winners(order, tc.units, quantities, void), want)
	}
}
