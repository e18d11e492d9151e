package ranks

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"flashsale/internal/beacon"
)

// Version is the version of the encoding and of the document.
const Version = 1

// The bounds of a document. They keep a broken or hostile file from using up the memory of whoever checks it.
const (
	maxEntries  = 100_000_000
	maxQuantity = math.MaxInt32
	maxUnits    = 1<<53 - 1 // JavaScript would round larger integers
	maxRound    = 1<<53 - 1
	maxText     = 128 // characters of a sale's id or a mode
	maxToken    = 512 // bytes of a value, or of white space; the longest value is a public key of 192 digits
)

// textLetters are the letters of a sale's id and of a mode.
const textLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"

// Mode is the way in which a sale chooses, among its entries, who may buy.
type Mode string

// Line: entrants are called in the order of their ranks. Draw: Winners chooses the entries that win.
const (
	Line Mode = "line"
	Draw Mode = "draw"
)

// Head is the short part of a document. N is the number of entries before the seal. If N is 0, Seed is nil. Units is how many
// units a draw had to give; it is nil for a line.
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

// Beacon is the round of drand whose randomness is a part of the seed. PublicKey is the key of drand's chain.
type Beacon struct {
	PublicKey  Bytes  `json:"public_key"`
	Round      uint64 `json:"round"`
	Signature  Bytes  `json:"signature"`
	Randomness Hash   `json:"randomness"`
}

// Bytes are bytes that are hex digits in JSON.
type Bytes []byte

// MarshalText returns the hex digits. It returns no error.
func (b Bytes) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, b), nil }

// Document is what everybody needs to check a line or a draw. Void are the numbers, ascending, of the entries that took no
// part, because their users had left or the entries were removed before the seal. Winners are the numbers of the entries
// that a draw has drawn, in the order of rank. Quantities and Tags have an element for each entry, by its number.
type Document struct {
	Head

	Void, Winners, Quantities []int64
	Tags                      []Hash
}

// Lists are the long parts of a document, as they come from a store. At an error in a list, Write stops. Winners is nil for a
// line.
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

// Write writes a document as JSON. It writes each element of a list as it comes, and so needs little memory. It returns an
// error if w or a list fails; what was written is then not a document.
func Write(w io.Writer, head Head, lists Lists) error {
	head.Version = Version
	short, err := json.Marshal(head) //nolint:gosec // the secret is public once there is a document
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
// Void ascends, and that there is a quantity and a tag for each entry. The error says in one line which part is wrong.
func Read(r io.Reader) (*Document, error) {
	d := &reader{json: json.NewDecoder(&guard{from: r})}
	d.json.UseNumber()
	doc := &Document{}
	seen, err := d.object(map[string]func() error{
		"version":    func() error { return d.integer(&doc.Version, Version, Version) },
		"sale":       func() error { return d.text(&doc.Sale) },
		"mode":       func() error { return d.text((*string)(&doc.Mode)) },
		"n":          func() error { return d.integer(&doc.N, 0, maxEntries) },
		"commitment": func() error { return d.hash(&doc.Commitment) },
		"root":       func() error { return d.hash(&doc.Root) },
		"secret":     func() error { return d.hash(&doc.Secret) },
		"seed": func() error {
			doc.Seed = &Hash{}
			return d.hash(doc.Seed)
		},
		"beacon": func() (err error) {
			doc.Beacon, err = d.beacon()
			return err
		},
		"units": func() error {
			doc.Units = new(int64)
			return d.integer(doc.Units, 0, maxUnits)
		},
		"void":       func() error { return d.integers(&doc.Void, 0, maxEntries-1) },
		"winners":    func() error { return d.integers(&doc.Winners, 0, maxEntries-1) },
		"quantities": func() error { return d.integers(&doc.Quantities, 1, maxQuantity) },
		"tags":       func() error { return list(d, &doc.Tags, d.hash) },
	})
	if err == nil {
		err = complete(doc, seen)
	}
	if _, end := d.json.Token(); err == nil && !errors.Is(end, io.EOF) {
		err = errors.New("something follows the document")
	}
	if err != nil {
		return nil, fmt.Errorf("not a valid document: %w", err)
	}
	return doc, nil
}

// complete checks that the fields of a document that was read fit together.
func complete(doc *Document, seen []string) error {
	for _, name := range []string{"version", "sale", "mode", "n", "commitment", "root", "secret", "void", "quantities", "tags"} {
		if !slices.Contains(seen, name) {
			return fmt.Errorf("%s: is missing", name)
		}
	}
	if doc.Mode != Line && doc.Mode != Draw {
		return fmt.Errorf("mode: is %s, want %s or %s", doc.Mode, Line, Draw)
	}
	for _, field := range []struct {
		name string
		need bool
	}{{"units", doc.Mode == Draw}, {"winners", doc.Mode == Draw}, {"seed", doc.N > 0}} {
		switch there := slices.Contains(seen, field.name); {
		case field.need && !there:
			return fmt.Errorf("%s: is missing", field.name)
		case there && !field.need:
			return fmt.Errorf("%s: must not be there in a %s of %d entries", field.name, doc.Mode, doc.N)
		}
	}
	if len(doc.Tags) != int(doc.N) || len(doc.Quantities) != int(doc.N) {
		return fmt.Errorf("n: is %d, with %d tags and %d quantities", doc.N, len(doc.Tags), len(doc.Quantities))
	}
	for i, number := range doc.Void {
		if number >= doc.N || i > 0 && number <= doc.Void[i-1] {
			return fmt.Errorf("void: has %d, want ascending numbers of entries", number)
		}
	}
	return nil
}

// reader reads the values of a document one by one, so that no list is in memory twice.
type reader struct{ json *json.Decoder }

// object reads an object, and returns the names of its fields. The object may lack some of these fields, but must not have
// others, nor a field twice.
func (d *reader) object(fields map[string]func() error) (seen []string, err error) {
	if err := d.delimiter('{'); err != nil {
		return nil, err
	}
	for d.json.More() {
		token, err := d.json.Token()
		if err != nil {
			return nil, unexpected(err)
		}
		name, _ := token.(string) // json allows nothing else here
		switch read, known := fields[name]; {
		case !known:
			return nil, fmt.Errorf("%.*q: is no field of version %d", maxText, name, Version)
		case slices.Contains(seen, name):
			return nil, fmt.Errorf("%s: is there twice", name)
		default:
			if err := read(); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		seen = append(seen, name)
	}
	return seen, d.delimiter('}')
}

func (d *reader) beacon() (*Beacon, error) {
	b := &Beacon{}
	var round int64
	names, err := d.object(map[string]func() error{
		"public_key": func() error { return d.bytes(&b.PublicKey, beacon.PublicKeySize) },
		"round":      func() error { return d.integer(&round, 1, maxRound) },
		"signature":  func() error { return d.bytes(&b.Signature, beacon.SignatureSize) },
		"randomness": func() error { return d.hash(&b.Randomness) },
	})
	if err == nil && len(names) != 4 {
		err = fmt.Errorf("has only the fields %v", names)
	}
	b.Round = uint64(round) //nolint:gosec // it is not negative
	return b, err
}

// list reads an array of at most maxEntries elements.
func list[T any](d *reader, into *[]T, read func(*T) error) error {
	if err := d.delimiter('['); err != nil {
		return err
	}
	for d.json.More() {
		if len(*into) == maxEntries {
			return fmt.Errorf("has more than %d elements", maxEntries)
		}
		var element T
		if err := read(&element); err != nil {
			return fmt.Errorf("element %d %w", len(*into), err)
		}
		*into = append(*into, element)
	}
	return d.delimiter(']')
}

func (d *reader) integers(into *[]int64, least, most int64) error {
	return list(d, into, func(n *int64) error { return d.integer(n, least, most) })
}

func (d *reader) integer(into *int64, least, most int64) error {
	number, err := value[json.Number](d, "a number")
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil || n < least || n > most {
		return fmt.Errorf("is %s, want an integer of %d to %d", number, least, most)
	}
	*into = n
	return nil
}

// text reads a name, which is not empty.
func (d *reader) text(into *string) error {
	text, err := value[string](d, "a string")
	if err != nil {
		return err
	}
	odd := func(r rune) bool { return !strings.ContainsRune(textLetters, r) }
	if text == "" || len(text) > maxText || strings.ContainsFunc(text, odd) {
		return fmt.Errorf("is %.*q, want 1 to %d of A-Z a-z 0-9 . _ : -", maxText, text, maxText)
	}
	*into = text
	return nil
}

func (d *reader) hash(into *Hash) error {
	text, err := value[string](d, "a string")
	if err != nil {
		return err
	}
	return into.UnmarshalText([]byte(text))
}

func (d *reader) bytes(into *Bytes, size int) error {
	text, err := value[string](d, "a string")
	if err != nil {
		return err
	}
	if *into, err = hex.DecodeString(text); err != nil || len(*into) != size {
		return fmt.Errorf("want %d hex digits", 2*size)
	}
	return nil
}

func (d *reader) delimiter(want json.Delim) error {
	got, err := value[json.Delim](d, want.String())
	if err == nil && got != want {
		err = fmt.Errorf("has %v, want %v", got, want)
	}
	return err
}

// value reads a token of type T.
func value[T json.Number | string | json.Delim](d *reader, what string) (T, error) {
	token, err := d.json.Token()
	got, ok := token.(T)
	if err != nil {
		return got, unexpected(err)
	}
	if !ok {
		return got, fmt.Errorf("is not %s", what)
	}
	return got, nil
}

// unexpected makes io.ErrUnexpectedEOF of io.EOF, because the file ends within the document.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// guard is a reader that fails at a value that is too long, since the JSON decoder would take the whole value into memory. It
// counts the bytes since the last quotation mark, or comma outside of a string: all of them belong to one value and the white
// space and brackets around it.
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
		switch {
		case c == '"':
			g.inString = !g.inString
			g.run = 0
		case c == ',' && !g.inString:
			g.run = 0
		case c == '\\': // no field needs an escape, and without escapes each quotation mark begins or ends a string
			g.err = errors.New("has a backslash")
			return 0, g.err
		default:
			if g.run++; g.run > maxToken {
				g.err = fmt.Errorf("has a value of more than %d bytes", maxToken)
				return 0, g.err
			}
		}
	}
	return n, g.err
}
