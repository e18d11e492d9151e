package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rehearse exits with 0 if the rehearsal has passed, 1 if it has not, and 2 for wrong arguments, which it names in one line.
func TestRehearse(t *testing.T) {
	path, embedded := sqliteFile(t)
	folder := t.TempDir()
	file := func(name, text string) string {
		noError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
		return "--shape=" + filepath.Join(folder, name)
	}
	// One buyer, so that a busy machine is not late with one in a hundred.
	shape := file("shape.yaml", "arrivals: spike\nbuyers: 1\nunits: 1\nlasts: 1s\npay: 1\n")
	out := "--out=" + filepath.Join(folder, "report")
	if code, _, stderr := execute(t, nil, "rehearse", embedded, "--url=http://127.0.0.1:1", shape, out); code != 2 || !strings.Contains(stderr, path) {
		t.Errorf("before there is a database: exit %d, %s", code, stderr)
	}
	s := serve(t, nil, embedded, "--demo=false")
	good := []string{"rehearse", embedded, "--url=" + s.url, shape, out}
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no URL":                   {[]string{"rehearse", embedded, shape}, 2, "--url"},
		"no shape":                 {[]string{"rehearse", embedded, "--url=" + s.url}, 2, "--shape"},
		"a URL with a path":        {append(good, "--url="+s.url+"/shop"), 2, "--url: "},
		"a URL with a password":    {append(good, "--url=http://me:pw@127.0.0.1"), 2, "--url: "},
		"a URL of another kind":    {append(good, "--url=ftp://shop.example"), 2, "--url: "},
		"too many connections":     {append(good, "--connections=60001"), 2, "--connections: "},
		"too few connections":      {append(good, "--connections=15"), 2, "--connections: "},
		"no folder":                {append(good, "--out="), 2, "--out: "},
		"a shape that is wrong":    {append(good, file("wrong.yaml", "arrivals: rain")), 2, "--shape: "},
		"payments of real money":   {append(good, "--payment=stripe"), 2, "pay: only with --payment sandbox"},
		"a secret that is short":   {append(good, "--secret=short"), 2, "--secret"},
		"tokens of another secret": {append(good, "--secret="+strings.Repeat("another ", 5)), 1, "--secret: "},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := execute(t, nil, tc.args...)
			if code != tc.code || !strings.Contains(stderr, tc.says) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit %d, want %d with %q; printed %s", code, tc.code, tc.says, stderr)
			}
		})
	}
	code, stdout, stderr := execute(t, nil, good...)
	if code != 0 && !strings.Contains(stdout, "\nlate\n") || !strings.Contains(stdout, "people were told: paid: 1\n") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
}
