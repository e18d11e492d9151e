package ranks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"flashsale/test/kit/check"
)

// same compares documents; an empty list may be nil.
func same(t *testing.T, what string, got, want *Document) {
	t.Helper()
	check.Same(t, what+": head", got.Head, want.Head)
	check.Same(t, what+": lists", fmt.Sprint(got.Void, got.Winners, got.Quantities, got.Tags), fmt.Sprint(want.Void, want.Winners, want.Quantities, want.Tags))
}

func TestDocumentsAreReadAsWritten(t *testing.T) {
	whole, _ := drawn(t)
	for name, want := range map[string]*Document{
		"a draw with a beacon":   whole,
		"a draw":                 draw(tagsOf(3), []int64{1, maxQuantity, 1}, []int64{0, 2}, maxUnits),
		"a line":                 line(tagsOf(4), []int64{1, 1, 1, 1}, nil),
		"a line without entries": line(nil, nil, nil),
		"a draw without entries": draw(nil, nil, nil, 0),
	} {
		file := encode(want)
		same(t, name, check.Must(Read(bytes.NewReader(file))), want)
		same(t, name+", byte by byte", check.Must(Read(iotest.OneByteReader(bytes.NewReader(file)))), want)
		var pretty bytes.Buffer
		check.NoError(t, json.Indent(&pretty, file, "", "    "))
		same(t, name+", indented", check.Must(Read(&pretty)), want)
		var fields map[string]any // in another order
		check.NoError(t, json.Unmarshal(file, &fields))
		same(t, name+", sorted", check.Must(Read(bytes.NewReader(check.Must(json.Marshal(fields))))), want)
	}
}

// A file that is no document is an error of one line that names the part.
func TestMalformedDocuments(t *testing.T) {
	doc, _ := drawn(t)
	good := string(encode(doc))
	hash := doc.Root.String()
	for name, tc := range map[string]struct{ old, with, says string }{
		"nothing":                {good, "", "EOF"},
		"no JSON":                {good, "draw", "invalid character"},
		"an array":               {good, "[]", "the whole: has the wrong type"},
		"null":                   {good, "null", "is null"},
		"a text after it":        {"}\n", "} {}", "after top-level value"},
		"cut":                    {"}\n", "", "EOF"},
		"cut in a list":          {"]}\n", "", "EOF"},
		"a missing comma":        {`,"mode"`, ` "mode"`, "invalid character"},
		"an unknown field":       {`"sale"`, `"shop"`, "shop"},
		"a field in capitals":    {`"sale"`, `"Sale"`, "Sale"},
		"a field twice":          {`"n":10`, `"n":10,"n":10`, `duplicate object member name "n"`},
		"another version":        {`"version":1`, `"version":2`, "version"},
		"no version":             {`"version":1,`, ``, "version: is missing"},
		"an unknown mode":        {`"draw"`, `"rush"`, "rush"},
		"a line with winners":    {`"draw"`, `"line"`, "units: must not be there"},
		"an empty sale":          {`"S1"`, `""`, "sale"},
		"a long sale":            {`"S1"`, `"` + strings.Repeat("S", maxText+1) + `"`, "sale"},
		"odd letters":            {`"S1"`, `"<S1>"`, "sale: is \"<S1>\""},
		"a huge sale":            {`"S1"`, `"` + strings.Repeat(",", maxToken+1) + `"`, "more than 512 bytes"},
		"a number as the sale":   {`"S1"`, `1`, `sale: has the wrong type`},
		"an escape":              {`"S1"`, `"\u0053"`, "backslash"},
		"a string as n":          {`"n":10`, `"n":"10"`, `n: has the wrong type`},
		"n null":                 {`"n":10`, `"n":null`, `n: is null`},
		"n with a fraction":      {`"n":10`, `"n":10.0`, `n: invalid syntax`},
		"n with an exponent":     {`"n":10`, `"n":1e1`, `n: invalid syntax`},
		"n negative":             {`"n":10`, `"n":-1`, "n: is -1"},
		"n too large":            {`"n":10`, `"n":100000001`, "n: is 100000001"},
		"n far too large":        {`"n":10`, `"n":1` + strings.Repeat("0", 99), `n: value out of range`},
		"n for ever":             {`"n":10`, `"n":1` + strings.Repeat("0", maxToken), "more than 512 bytes"},
		"n too small":            {`"n":10`, `"n":9`, "n: is 9, with 10 tags"},
		"n zero":                 {`"n":10`, `"n":0`, "seed: must not be there"},
		"a short hash":           {hash, hash[1:], "root"},
		"a hash with an x":       {hash, "x" + hash[1:], "root"},
		"a hash null":            {`"` + hash + `"`, `null`, `root: is null`},
		"a void number outside":  {`"void":[2,5]`, `"void":[2,10]`, "void: has 10"},
		"a void number twice":    {`"void":[2,5]`, `"void":[2,2]`, "void: has 2"},
		"void numbers unsorted":  {`"void":[2,5]`, `"void":[5,2]`, "void: has 2"},
		"a void number below 0":  {`"void":[2,5]`, `"void":[-2,5]`, "void: has -2"},
		"a list in a list":       {`"void":[2,5]`, `"void":[[2,5]]`, `void.0: has the wrong type`},
		"an object as a list":    {`"void":[2,5]`, `"void":{}`, `void: has the wrong type`},
		"a comma too many":       {`"void":[2,5]`, `"void":[2,5,]`, "void"},
		"winners below 0":        {`"winners":[`, `"winners":[-1,`, "winners: element 0 is -1"},
		"a quantity of 0":        {`"quantities":[1,2`, `"quantities":[1,0`, "quantities: element 1 is 0"},
		"a large quantity":       {`"quantities":[1,2`, `"quantities":[1,2147483648`, "quantities: element 1 is 2147483648"},
		"a quantity too many":    {`"quantities":[1`, `"quantities":[1,1`, "11 quantities"},
		"units below 0":          {`"units":6`, `"units":-6`, "units: is -6"},
		"no units":               {`"units":6`, `"version":1`, `duplicate object member name "version"`},
		"a tag too many":         {`"tags":[`, `"tags":["` + hash + `",`, "11 tags"},
		"a short tag":            {`"tags":["`, `"tags":["ab","`, `tags.0: has 2 characters`},
		"a beacon null":          {`"beacon":{`, `"beacon":null,"x":{`, `beacon: is null`},
		"a beacon without round": {`"round":7,`, ``, "beacon: round: is 0"},
		"a round of 0":           {`"round":7`, `"round":0`, "beacon: round: is 0"},
		"a short key":            {`"public_key":"`, `"public_key":"ab`, "beacon: public_key: want 192 hex digits"},
		"a long signature":       {`"signature":"`, `"signature":"ab`, "beacon: signature: want 96 hex digits"},
	} {
		t.Run(name, func(t *testing.T) {
			file := strings.Replace(good, tc.old, tc.with, 1)
			if file == good {
				t.Fatalf("the document has no %s", tc.old)
			}
			_, err := Read(strings.NewReader(file))
			if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 2*maxToken {
				t.Errorf("the error is %v, want one that says %q", err, tc.says)
			}
		})
	}
}

// Each field is needed, but for the beacon.
func TestMissingFields(t *testing.T) {
	doc, _ := drawn(t)
	var fields map[string]any
	check.NoError(t, json.Unmarshal(encode(doc), &fields))
	for name := range fields {
		without := map[string]any{}
		for other, value := range fields {
			if other != name {
				without[other] = value
			}
		}
		_, err := Read(bytes.NewReader(check.Must(json.Marshal(without))))
		if name == "beacon" {
			check.Error(t, "no beacon", err, nil)
		} else if err == nil || !strings.Contains(err.Error(), name+": is missing") {
			t.Errorf("without %s the error is %v", name, err)
		}
	}
}

func TestReadersErrors(t *testing.T) {
	broken := errors.New("the disk is broken")
	_, err := Read(io.MultiReader(strings.NewReader(`{"version":`), iotest.ErrReader(broken)))
	check.Error(t, "read", err, broken)
}

func TestWritersErrors(t *testing.T) {
	broken := errors.New("the store is away")
	doc, _ := drawn(t)
	for name, change := range map[string]func(l *Lists){
		"void":       func(l *Lists) { l.Void = fails[int64](broken) },
		"winners":    func(l *Lists) { l.Winners = fails[int64](broken) },
		"quantities": func(l *Lists) { l.Quantities = fails[int64](broken) },
		"tags":       func(l *Lists) { l.Tags = fails[Hash](broken) },
	} {
		l := lists(doc)
		change(&l)
		err := Write(io.Discard, doc.Head, l)
		check.Error(t, name, err, broken)
		check.Same(t, name+" is named", strings.Contains(err.Error(), name), true)
	}
	long := line(tagsOf(1000), make([]int64, 1000), nil)
	check.Error(t, "a writer that is full", Write(full{}, long.Head, lists(long)), io.ErrShortWrite)
}

// fails is a list that breaks after its first element.
func fails[T any](err error) func(yield func(T, error) bool) {
	return func(yield func(T, error) bool) {
		var zero T
		_ = yield(zero, nil) && yield(zero, err)
	}
}

// full is a writer that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, nil }

// FuzzRead: a file is refused, or it is JSON, means the same when it is written again, and can be checked.
func FuzzRead(f *testing.F) {
	key, beacon := beaconKey()
	whole := draw(tagsOf(3), []int64{1, 2, 1}, []int64{1}, 2)
	whole.Beacon = beacon
	for _, doc := range []*Document{whole, line(tagsOf(2), []int64{1, 1}, nil), line(nil, nil, nil)} {
		f.Add(encode(doc))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		doc, err := Read(bytes.NewReader(file))
		if err != nil {
			return
		}
		if !json.Valid(file) {
			t.Errorf("accepted, though it is not JSON: %q", file)
		}
		_ = Check(doc, key) // may find anything, but must not panic
		same(t, "written and read again", check.Must(Read(bytes.NewReader(encode(doc)))), doc)
	})
}
