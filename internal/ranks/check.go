package ranks

import (
	"bytes"
	"fmt"
	"slices"

	"flashsale/internal/beacon"
)

// Check recomputes what follows from the rest of a document: the commitment, the root, the randomness, the seed, and the winners of
// a draw. beaconKey is the public key of the beacon that the caller trusts; the key in the document proves nothing. The document
// must come from Read. The error says which part does not agree.
func Check(doc *Document, beaconKey []byte) error {
	if got := Commitment(doc.Secret); got != doc.Commitment {
		return fmt.Errorf("the commitment does not agree with the secret, whose SHA-256 is %s", got)
	}
	if got := RootOf(doc.Tags); got != doc.Root {
		return fmt.Errorf("the root does not agree with the tags, whose root is %s", got)
	}
	var randomness []byte
	if doc.Beacon != nil {
		if err := checkBeacon(doc.Beacon, beaconKey); err != nil {
			return err
		}
		randomness = doc.Beacon.Randomness[:]
	}
	if doc.Seed != nil {
		if got := Seed(doc.Secret, doc.Root, randomness); got != *doc.Seed {
			return fmt.Errorf("the seed does not agree with secret, root and beacon, which give %s", got)
		}
	}
	if doc.Mode == Draw {
		return checkWinners(doc)
	}
	return nil
}

func checkBeacon(b *Beacon, key []byte) error {
	if !bytes.Equal(b.PublicKey, key) {
		return fmt.Errorf("the beacon does not agree: its public key is %x, which is not the trusted one", b.PublicKey)
	}
	got, err := beacon.Verify(b.PublicKey, b.Round, b.Signature)
	if err != nil {
		return fmt.Errorf("the beacon does not agree: %w", err)
	}
	if Hash(got) != b.Randomness {
		return fmt.Errorf("the randomness of the beacon does not agree with its signature, whose SHA-256 is %x", got)
	}
	return nil
}

func checkWinners(doc *Document) error {
	order := doc.Order()
	winners := Winners(order, *doc.Units, doc.Quantities, doc.Void)
	for place, want := range winners {
		if place >= len(doc.Winners) {
			return fmt.Errorf("the winners do not agree: entry %d of rank %d is missing", want, order.Rank(want))
		}
		if got := doc.Winners[place]; got != want {
			return fmt.Errorf("the winners do not agree: number %d of the list is entry %d, want entry %d of rank %d",
				place+1, got, want, order.Rank(want))
		}
	}
	if more := doc.Winners[len(winners):]; len(more) > 0 {
		return fmt.Errorf("the winners do not agree: entry %d was not drawn", more[0])
	}
	return nil
}

// Order returns the order of the document's entries.
func (doc *Document) Order() Order {
	order := Order{N: doc.N}
	if doc.Seed != nil {
		order.Seed = *doc.Seed
	}
	return order
}

// Winners draws. It returns the numbers of the entries that win, in the order of their ranks. It goes through the ranks from 0
// until no unit is left. It passes over void entries, and over entries whose quantity is larger than the units left.
// "quantities" has the quantity of each entry, by its number. "void" has the numbers of the void entries, ascending.
func Winners(order Order, units int64, quantities, void []int64) []int64 {
	winners := []int64{}
	for rank := int64(0); rank < order.N && units > 0; rank++ {
		number := order.Number(rank)
		if _, out := slices.BinarySearch(void, number); !out && quantities[number] <= units {
			units -= quantities[number]
			winners = append(winners, number)
		}
	}
	return winners
}
