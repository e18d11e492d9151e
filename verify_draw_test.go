package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flashsale/internal/ranks"
)

// verify-draw exits with 0 if all of a file agrees, 1 if a part does not, and 2 for wrong arguments.
func TestVerifyDraw(t *testing.T) {
	secret, tags, quantities := ranks.Hash{1}, []ranks.Hash{{2}, {3}, {4}}, []int64{1, 1, 1}
	var root ranks.Root
	for _, tag := range tags {
		root.Add(tag)
	}
	seed := ranks.Seed(secret, root.Sum(), nil)
	order := ranks.Order{Seed: seed, N: int64(len(tags))}
	head := ranks.Head{
		Sale: "S1", Mode: ranks.Draw, N: order.N, Commitment: ranks.Commitment(secret), Root: root.Sum(), Secret: secret, Seed: &seed, Units: new(int64(2)),
	}
	var drawn bytes.Buffer
	noError(t, ranks.Write(&drawn, head, ranks.Lists{
		Void: ranks.All[int64](nil), Winners: ranks.All([]int64{order.Number(0), order.Number(1)}),
		Quantities: ranks.All(quantities), Tags: ranks.All(tags),
	}))
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		noError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := file("draw.json", drawn.String())
	for name, tc := range map[string]struct {
		args   []string
		code   int
		stdout string // a pattern; empty: nothing is printed
		stderr string
	}{
		"it agrees":          {[]string{good}, 0, `(?s)3 entries, 0 of them void\n.*winners: 2, who get 2 of 2 units`, ""},
		"the rank of one":    {[]string{good, "--number=7"}, 0, `\nentry 7 has rank 7\n`, ""},
		"other units":        {[]string{file("units.json", strings.Replace(drawn.String(), `"units":2`, `"units":1`, 1))}, 1, "", `units\.json: the winners do not agree`},
		"no document":        {[]string{file("text", "draw")}, 1, "", `text: not a valid document`},
		"no file":            {[]string{good + ".old"}, 2, "", `draw\.json\.old`},
		"a folder":           {[]string{t.TempDir()}, 2, "", `there is no file`},
		"no argument":        {nil, 2, "", `file`},
		"a negative number":  {[]string{good, "--number=-1"}, 2, "", `--number`},
		"a bad beacon key":   {[]string{good, "--beacon-key=x"}, 2, "", `--beacon-key`},
		"a short beacon key": {[]string{good, "--beacon-key=ab"}, 2, "", `--beacon-key`},
	} {
		t.Run(name, func(t *testing.T) {
			exits(t, nil, append([]string{"verify-draw"}, tc.args...), tc.code, tc.stdout, tc.stderr)
		})
	}
}
