package command

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"flashsale/internal/beacon"
	"flashsale/internal/config"
	"flashsale/internal/ranks"
)

func validateVerifyDraw(options config.VerifyDraw) error {
	info, err := os.Stat(options.File)
	key, odd := hex.DecodeString(options.BeaconKey)
	return cmp.Or(
		config.Refuse(err != nil || info.IsDir(), "there is no file %s", options.File),
		config.Refuse(options.Number != nil && *options.Number < 0, "--number: must be 0 or more"),
		config.Refuse(odd != nil || options.BeaconKey != "" && len(key) != beacon.PublicKeySize, "--beacon-key: must be %d hex digits", 2*beacon.PublicKeySize),
	)
}

// verifyDraw checks the proof of a line or a draw, and prints its values if they agree. The error says what is wrong.
func verifyDraw(options config.VerifyDraw, w io.Writer) error {
	doc, err := checkedDocument(options)
	if err != nil {
		return fmt.Errorf("%s: %w", options.File, err)
	}
	fmt.Fprintf(w, "%s of sale %s: %d entries, %d of them void\n", doc.Mode, doc.Sale, doc.N, len(doc.Void))
	fmt.Fprintf(w, "commitment %s agrees with the secret\n", doc.Commitment)
	fmt.Fprintf(w, "root %s agrees with the entries\n", doc.Root)
	if doc.Beacon != nil {
		fmt.Fprintf(w, "beacon round %d agrees with the key of the beacon\n", doc.Beacon.Round)
	}
	if doc.Seed != nil {
		fmt.Fprintf(w, "seed %s agrees\n", doc.Seed)
	}
	if doc.Mode == ranks.Draw {
		var units int64
		for _, number := range doc.Winners {
			units += doc.Quantities[number]
		}
		fmt.Fprintf(w, "winners: %d, who get %d of %d units; all agree\n", len(doc.Winners), units, *doc.Units)
	}
	if number := options.Number; number != nil {
		fmt.Fprintf(w, "entry %d has rank %d\n", *number, doc.Order().Rank(*number))
	}
	fmt.Fprintln(w, "This proves the order if these are the values that were published: the commitment before the first entry,")
	fmt.Fprintln(w, "the number of entries, the root and the beacon round at the seal.")
	return nil
}

func checkedDocument(options config.VerifyDraw) (doc *ranks.Document, err error) {
	file, err := os.Open(options.File)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if doc, err = ranks.Read(file); err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(cmp.Or(options.BeaconKey, beacon.Quicknet))
	if err != nil {
		return nil, err
	}
	return doc, ranks.Check(doc, key)
}
