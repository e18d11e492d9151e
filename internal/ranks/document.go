package ranks

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json" // the mirror of encoding/json/v2, which comes with Go 1.27
	"github.com/go-json-experiment/json/jsontext"

	"flashsale/internal/beacon"
)

// Version is the version of the encoding and of the document.
const Version = 1

// The bounds of a document limit the memory that a broken or hostile file can take.
const (
	maxEntries  = 100_000_000
	maxQuantity = math.MaxInt32
	maxUnits    = 1<<53 - 1 // JavaScript would round larger integers
	maxRound    = 1<<53 - 1
	maxText     = 128 // characters of a text in an error
	maxToken    = 512 // bytes of a value with the white space around it; a public key has 192 digits
)

var saleForm = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// Mode says how a sale chooses the entries that may buy.
type Mode string

// A Line calls entrants in the order of their ranks. In a Draw, Winners returns the entries that win.
const (
	Line Mode = "line"
	Draw Mode = "draw"
)

// Head is the short part of a document. N is the number of entries before the seal; if N is 0, Seed is nil. Units is the number
// of units in a draw; it is nil for a line.
type Head struct {
	Version    int64   `json:"version"`
	Sale       string  `json:"sale"`
	Mode       Mode    `json:"mode"`
	N          int64   `json:"n"`
	Commitment Hash    `json:"commitment"`
	Root       Hash    `json:"root"`
	Secret     Hash    `json:"secret"`
	Seed       *Hash   `json:"seed,omitempty"`
	Beacon     *Beacon `json:"beacon,omitempty"`
	Units      *int64  `json:"units,omitempty"`
}

// Beacon is a round of drand whose randomness goes into the seed. PublicKey is the key of drand's chain.
type Beacon struct {
	PublicKey  Bytes  `json:"public_key"`
	Round      uint64 `json:"round"`
	Signature  Bytes  `json:"signature"`
	Randomness Hash   `json:"randomness"`
}

// Bytes are bytes that JSON shows as hex digits.
type Bytes []byte

// MarshalText returns the hex digits.
func (b Bytes) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, b), nil }

// UnmarshalText reads hex digits.
func (b *Bytes) UnmarshalText(text []byte) (err error) {
	*b, err = hex.AppendDecode(nil, text)
	return err
}

// Document has what is needed to check a line or a draw. Void has the numbers of the entries that took no part, ascending.
// Winners has the numbers of the entries that a draw has drawn, in the order of their ranks. Quantities and Tags have an element
// for each entry, by its number.
type Document struct {
	Head

	Void       []int64 `json:"void"`
	Winners    []int64 `json:"winners"`
	Quantities []int64 `json:"quantities"`
	Tags       []Hash  `json:"tags"`
}

// Lists are the long parts of a document. An error in a list ends Write. Winners is nil for a line.
type Lists struct {
	Void, Winners, Quantities iter.Seq2[int64, error]
	Tags                      iter.Seq2[Hash, error]
}

// All returns the elements of a list that is in memory, for Lists.
func All[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, element := range list {
			if !yield(element, nil) {
				return
			}
		}
	}
}

// Write writes a document as JSON, each element of a list as it comes. After an error the document is not complete.
func Write(w io.Writer, head Head, lists Lists) error {
	head.Version = Version
	short, err := json.Marshal(head)
	if err != nil {
		return fmt.Errorf("write the document of sale %s: %w", head.Sale, err)
	}
	out := bufio.NewWriter(w)
	_, _ = out.Write(short[:len(short)-1]) // without the brace; Flush returns any error of out
	number := func(buffer []byte, n int64) []byte { return strconv.AppendInt(buffer, n, 10) }
	err = writeList(out, "void", lists.Void, number)
	if err == nil && lists.Winners != nil {
		err = writeList(out, "winners", lists.Winners, number)
	}
	if err == nil {
		err = writeList(out, "quantities", lists.Quantities, number)
	}
	if err == nil {
		err = writeList(out, "tags", lists.Tags, func(buffer []byte, tag Hash) []byte {
			return append(hex.AppendEncode(append(buffer, '"'), tag[:]), '"')
		})
	}
	if err != nil {
		return fmt.Errorf("write the document of sale %s: %w", head.Sale, err)
	}
	_, _ = out.WriteString("}\n")
	return out.Flush()
}

func writeList[T any](out *bufio.Writer, name string, list iter.Seq2[T, error], encode func([]byte, T) []byte) error {
	_, _ = fmt.Fprintf(out, ",\n%q:[", name)
	buffer := make([]byte, 0, maxToken)
	separator := ""
	for element, err := range list {
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		buffer = encode(append(buffer[:0], separator...), element)
		if _, err := out.Write(buffer); err != nil {
			return err
		}
		separator = ","
	}
	_, _ = out.WriteString("]")
	return nil
}

// Read reads a document. It checks the form only: that the fields are those of the mode, each once and within its bounds, that
// Void ascends, and that there is a quantity and a tag for each entry. The error says what is wrong.
func Read(r io.Reader) (*Document, error) {
	doc := &Document{Head: Head{N: missing}}
	err := json.UnmarshalRead(&guard{from: r}, doc, json.RejectUnknownMembers(true), json.WithUnmarshalers(json.UnmarshalFromFunc(strict)))
	if wrong, ok := errors.AsType[*json.SemanticError](err); ok { // without the names of Go's types
		place := strings.ReplaceAll(strings.TrimPrefix(string(wrong.JSONPointer), "/"), "/", ".")
		err = fmt.Errorf("%s: %w", cmp.Or(place, "the whole"), cmp.Or(wrong.Err, errors.New("has the wrong type")))
	}
	if err == nil {
		err = cmp.Or(doc.complete(), doc.bounded())
	}
	if err != nil {
		return nil, fmt.Errorf("not a valid document: %w", err)
	}
	return doc, nil
}

// missing is the N of a document that has no field "n".
const missing = math.MinInt64

// strict refuses two things that the decoder takes: null, which would leave a field empty, and a list longer than maxEntries.
func strict(d *jsontext.Decoder, _ any) error {
	if in, elements := d.StackIndex(d.StackDepth()); in == '[' && elements == maxEntries {
		return fmt.Errorf("the list has more than %d elements", maxEntries)
	}
	if d.PeekKind() == 'n' {
		return errors.New("is null")
	}
	return errors.ErrUnsupported // let the decoder read the value
}

// complete returns an error if a required field is missing, or if one is there that the mode or N excludes.
func (doc *Document) complete() error {
	draw := doc.Mode != Line
	for _, field := range []struct {
		name        string
		there, need bool
	}{
		{"version", doc.Version != 0, true},
		{"sale", doc.Sale != "", true},
		{"mode", doc.Mode != "", true},
		{"n", doc.N != missing, true},
		{"commitment", doc.Commitment != Hash{}, true},
		{"root", doc.Root != Hash{}, true},
		{"secret", doc.Secret != Hash{}, true},
		{"units", doc.Units != nil, draw},
		{"winners", doc.Winners != nil, draw},
		{"seed", doc.Seed != nil, doc.N != 0},
		{"void", doc.Void != nil, true},
		{"quantities", doc.Quantities != nil, true},
		{"tags", doc.Tags != nil, true},
	} {
		switch {
		case field.need && !field.there:
			return fmt.Errorf("%s: is missing", field.name)
		case field.there && !field.need:
			return fmt.Errorf("%s: must not be there in a %s of %d entries", field.name, doc.Mode, doc.N)
		}
	}
	return nil
}

// bounded checks the values of a complete document.
func (doc *Document) bounded() error {
	checks := []error{
		refuse(doc.Version != Version, "version: is %d, want %d", doc.Version, Version),
		refuse(!saleForm.MatchString(doc.Sale), "sale: is %.*q, want 1 to 128 of A-Z a-z 0-9 . _ : -", maxText, doc.Sale),
		refuse(doc.Mode != Line && doc.Mode != Draw, "mode: is %.*q, want %s or %s", maxText, doc.Mode, Line, Draw),
		refuse(doc.N < 0 || doc.N > maxEntries, "n: is %d, want 0 to %d", doc.N, maxEntries),
		refuse(len(doc.Tags) != int(doc.N) || len(doc.Quantities) != int(doc.N),
			"n: is %d, with %d tags and %d quantities", doc.N, len(doc.Tags), len(doc.Quantities)),
		within("winners", doc.Winners, 0, maxEntries-1),
		within("quantities", doc.Quantities, 1, maxQuantity),
	}
	if units := doc.Units; units != nil {
		checks = append(checks, refuse(*units < 0 || *units > maxUnits, "units: is %d, want 0 to %d", *units, maxUnits))
	}
	if b := doc.Beacon; b != nil {
		checks = append(checks,
			refuse(len(b.PublicKey) != beacon.PublicKeySize, "beacon: public_key: want %d hex digits", 2*beacon.PublicKeySize),
			refuse(b.Round < 1 || b.Round > maxRound, "beacon: round: is %d, want 1 to %d", b.Round, maxRound),
			refuse(len(b.Signature) != beacon.SignatureSize, "beacon: signature: want %d hex digits", 2*beacon.SignatureSize),
			refuse(b.Randomness == Hash{}, "beacon: randomness: is missing"))
	}
	if err := cmp.Or(checks...); err != nil {
		return err
	}
	last := int64(-1)
	for _, number := range doc.Void {
		if number <= last || number >= doc.N {
			return fmt.Errorf("void: has %d, want ascending numbers of entries", number)
		}
		last = number
	}
	return nil
}

func within(name string, list []int64, least, most int64) error {
	i := slices.IndexFunc(list, func(n int64) bool { return n < least || n > most })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("%s: element %d is %d, want %d to %d", name, i, list[i], least, most)
}

func refuse(bad bool, text string, values ...any) error {
	if !bad {
		return nil
	}
	return fmt.Errorf(text, values...)
}

// guard is a reader that fails at a value that is too long, since the JSON decoder would take the whole value into memory. It
// counts the bytes since the last quotation mark, or comma outside of a string: these belong to at most one value and to what
// separates it from others.
type guard struct {
	from     io.Reader
	run      int // bytes since the last such quotation mark or comma
	inString bool
	err      error // the decoder reads on after an error
}

func (g *guard) Read(p []byte) (n int, err error) {
	if g.err != nil {
		return 0, g.err
	}
	n, g.err = g.from.Read(p)
	for _, c := range p[:n] {
		switch g.run++; {
		case c == '"':
			g.run, g.inString = 0, !g.inString
		case c == ',' && !g.inString:
			g.run = 0
		case c == '\\': // no field needs an escape, and without escapes each quotation mark begins or ends a string
			n, g.err = 0, errors.New("has a backslash")
			return n, g.err
		case g.run > maxToken:
			n, g.err = 0, fmt.Errorf("has a value of more than %d bytes", maxToken)
			return n, g.err
		}
	}
	return n, g.err
}
