package web

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flashsale/model"
)

// Every language has the same keys, and its texts have the same placeholders.
func TestLanguagesSayTheSame(t *testing.T) {
	place := regexp.MustCompile(`\{\w+\}`)
	places := func(text string) []string { return slices.Sorted(slices.Values(place.FindAllString(text, -1))) }
	for _, folder := range []string{shopWords, consoleWords} {
		all := wordsOf(t, folder)
		if languages := all.languages(); !slices.Equal(languages, wordsOf(t, shopWords).languages()) || !slices.Contains(languages, "en") || !slices.Contains(languages, "zh") {
			t.Fatalf("%s: languages %q", folder, languages)
		}
		for language, texts := range all {
			if missing, more := difference(all["en"], texts), difference(texts, all["en"]); len(missing)+len(more) > 0 {
				t.Errorf("%s/%s lacks %q and has %q", folder, language, missing, more)
			}
			for key, text := range texts {
				if !slices.Equal(places(text), places(all["en"][key])) {
					t.Errorf("%s/%s, %s: %q has other placeholders than %q", folder, language, key, text, all["en"][key])
				}
				if strings.TrimSpace(text) == "" {
					t.Errorf("%s/%s has an empty text for %s", folder, language, key)
				}
			}
		}
	}
}

// Every text is used, and every key that a page or a script names has a text. The storefront does not load the texts of
// the console, so it needs its own.
func TestWordsAreThoseOfThePages(t *testing.T) {
	shop, console := wordsOf(t, shopWords)["en"], wordsOf(t, consoleWords)["en"]
	for key := range console {
		if shop[key] != "" {
			t.Errorf("storefront and console both have a text %s", key)
		}
	}
	isConsoles := consoleFiles(t)
	var shopSource, consoleSource strings.Builder
	for _, files := range []fs.FS{pageFiles, assetFiles} {
		err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || entry.Name() == "layout.html" {
				return err
			}
			raw, err := fs.ReadFile(files, path)
			if isConsoles(entry.Name()) {
				consoleSource.Write(raw)
			} else {
				shopSource.Write(raw)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, shared := range []string{"pages.go", "pages/layout.html"} { // functions of templates name keys too
		raw, err := os.ReadFile(shared)
		if err != nil {
			t.Fatal(err)
		}
		consoleSource.Write(raw)
	}

	all := maps.Clone(shop)
	maps.Copy(all, console)
	key := regexp.MustCompile(`(?:say|text|enter|word)\((?:[^"()\x60\n]+(?:\([^()]*\))?, )?"([a-z_]+)"|\{\{say "([a-z_]+)"`)
	for name, side := range map[string]struct {
		source string
		words  map[string]string
	}{"storefront": {shopSource.String(), shop}, "console": {consoleSource.String(), all}} {
		named := map[string]string{}
		for _, match := range key.FindAllStringSubmatch(side.source, -1) {
			named[match[1]+match[2]] = ""
		}
		if missing := difference(named, side.words); len(missing) > 0 || len(named) < 30 {
			t.Errorf("%s: of %d keys these have no text: %q", name, len(named), missing)
		}
	}
	text := shopSource.String() + consoleSource.String()
	for key := range all {
		prefix, _, _ := strings.Cut(key, "_")
		suffix := key[strings.LastIndex(key, "_")+1:]
		used := slices.ContainsFunc([]string{`"` + key + `"`, "`" + prefix + "_${", "}_" + suffix + "`", `(print "` + prefix + `_"`, `coded("` + prefix + `"`},
			func(part string) bool { return strings.Contains(text, part) })
		if !used {
			t.Errorf("%s is not used", key)
		}
	}
}

// consoleFiles returns a function that reports whether only the console has a page or an asset.
func consoleFiles(t *testing.T) func(name string) bool {
	t.Helper()
	a := newAssets(t)
	shop := []string{"base.css", "arrow.svg", "lang.js", "mark.svg", "picture.svg"}
	for _, script := range []string{"sales.js", "sale.js", "orders.js"} {
		shop = append(append(shop, script), a.needs[script]...)
	}
	return func(name string) bool {
		if strings.HasSuffix(name, ".html") {
			return strings.HasPrefix(name, "console")
		}
		return !slices.Contains(shop, name)
	}
}

func wordsOf(t *testing.T, folders ...string) words {
	t.Helper()
	all, err := readWords(folders...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// There is a text for every state of a sale, status of an order, and verdict.
func TestWordsCoverTheModel(t *testing.T) {
	all := wordsOf(t, shopWords)
	want := func(prefix, value, suffix string) {
		if key := prefix + value + suffix; all["en"][key] == "" {
			t.Errorf("no text for %s", key)
		}
	}
	for _, state := range []model.SaleState{model.StateUpcoming, model.StateOpen, model.StatePaused, model.StateSoldOut, model.StateEnded} {
		want("state_", string(state), "")
	}
	for _, status := range []model.OrderStatus{model.OrderPending, model.OrderPaid, model.OrderCancelled, model.OrderExpired, model.OrderRefunded} {
		want("status_", string(status), "")
		want("yours_", string(status), "")
		want("yours_", string(status), "_more")
	}
	want("status_", string(model.OrderQueued), "")
	want("status_", string(model.OrderRejected), "")
	for _, verdict := range []model.Verdict{
		model.NotFound, model.NotStarted, model.Ended, model.Paused, model.LimitReached, model.SoldOut, model.Unauthenticated, model.BadPath, model.Forbidden,
		model.NameTaken, model.NotPayable, model.NotCancellable, model.IdempotencyMismatch, model.RateLimited, model.TooFrequent, model.Unavailable,
		model.ReasonLost, model.ReasonFailed,
	} {
		want("refused_", string(verdict), "")
	}
}

func TestSayEscapes(t *testing.T) {
	w := words{"en": {"left": "{left} of {quota} <left>"}, "zh": {"left": "剩 {left} / {quota}"}}
	got, err := w.say("left", "left", "<b>", "quota", 10)
	want := `<span lang="en">&lt;b&gt; of 10 &lt;left&gt;</span><span lang="zh">剩 &lt;b&gt; / 10</span>`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := w.say("nothing"); err == nil {
		t.Error("a missing key has a text")
	}
}

func TestMoney(t *testing.T) {
	for _, tc := range []struct {
		cents    int64
		currency string
		want     string
	}{
		{0, "CNY", "¥0.00"},
		{5, "USD", "$0.05"},
		{99_999, "EUR", "€999.99"},
		{100_000, "GBP", "£1,000.00"},
		{123_456_789_01, "CNY", "¥123,456,789.01"},
		{990, "SEK", "9.90\u00a0SEK"},
	} {
		if got := money(tc.cents, tc.currency); got != tc.want {
			t.Errorf("%d %s: %q, want %q", tc.cents, tc.currency, got, tc.want)
		}
	}
}

func difference[V, W any](a map[string]V, b map[string]W) (list []string) {
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[key]; !ok {
			list = append(list, fmt.Sprint(key))
		}
	}
	return list
}
