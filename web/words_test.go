package web

import (
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// Every language has the same keys, and its texts have the same placeholders.
func TestLanguagesSayTheSame(t *testing.T) {
	place := regexp.MustCompile(`\{\w+\}`)
	places := func(text string) []string { return slices.Sorted(slices.Values(place.FindAllString(text, -1))) }
	for _, folder := range []string{shopWords, consoleWords} {
		all := check.Must(readWords(folder))
		check.Same(t, folder+": languages", all.languages(), check.Must(readWords(shopWords)).languages())
		check.Same(t, folder+" is in English and Chinese", len(all["en"]) > 0 && len(all["zh"]) > 0, true)
		for language, texts := range all {
			check.Same(t, folder+"/"+language+": keys", slices.Sorted(maps.Keys(texts)), slices.Sorted(maps.Keys(all["en"])))
			for key, text := range texts {
				check.Same(t, folder+"/"+language+": placeholders of "+key, places(text), places(all["en"][key]))
				check.Same(t, folder+"/"+language+" has a text for "+key, strings.TrimSpace(text) != "", true)
			}
		}
	}
}

// Every text is used, and every key that a page or a script names has a text. The storefront does not load the texts of
// the console, so it needs its own.
func TestWordsAreThoseOfThePages(t *testing.T) {
	shop, console := check.Must(readWords(shopWords))["en"], check.Must(readWords(consoleWords))["en"]
	for key := range console {
		check.Same(t, "text of the storefront for the console's "+key, shop[key], "")
	}
	isConsoles := consoleFiles()
	var shopSource, consoleSource strings.Builder
	for _, files := range []fs.FS{pageFiles, assetFiles} {
		check.Done(fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
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
		}))
	}
	for _, shared := range []string{"pages.go", "pages/layout.html"} { // functions of templates name keys too
		consoleSource.Write(check.Must(os.ReadFile(shared)))
	}

	all := maps.Clone(shop)
	maps.Copy(all, console)
	key := regexp.MustCompile(`(?:say|text|enter|word)\((?:[^"()\x60\n]+(?:\([^()]*\))?, )?"([a-z_]+)"|\{\{say "([a-z_]+)"`)
	for name, side := range map[string]struct {
		source string
		words  map[string]string
	}{"storefront": {shopSource.String(), shop}, "console": {consoleSource.String(), all}} {
		var missing []string
		named := map[string]bool{}
		for _, match := range key.FindAllStringSubmatch(side.source, -1) {
			name := match[1] + match[2]
			if _, ok := side.words[name]; !ok {
				missing = append(missing, name)
			}
			named[name] = true
		}
		check.Same(t, name+": keys without a text", missing, nil)
		check.Same(t, name+": there are many keys", len(named) >= 30, true)
	}
	text := shopSource.String() + consoleSource.String()
	for key := range all {
		prefix, _, _ := strings.Cut(key, "_")
		suffix := key[strings.LastIndex(key, "_")+1:]
		used := slices.ContainsFunc([]string{`"` + key + `"`, "`" + prefix + "_${", "}_" + suffix + "`", `(print "` + prefix + `_"`, `coded("` + prefix + `"`},
			func(part string) bool { return strings.Contains(text, part) })
		check.Same(t, key+" is used", used, true)
	}
}

// consoleFiles returns a function that reports whether only the console has a page or an asset.
func consoleFiles() func(name string) bool {
	a := check.Must(NewAssets())
	shop := []string{"base.css", "arrow.svg", "lang.js", "mark.svg", "picture.svg"}
	for _, script := range []string{"sales.js", "line.js", "campaign.js", "orders.js", "login.js", "embed.js"} {
		shop = append(append(shop, script), a.needs[script]...)
	}
	return func(name string) bool {
		if strings.HasSuffix(name, ".html") {
			return strings.HasPrefix(name, "console")
		}
		return !slices.Contains(shop, name) && name != "shop-ffcc00.css" // of wholeShop
	}
}

// The element for shops has the texts that its modules name, and no text that they don't.
func TestWordsOfTheElement(t *testing.T) {
	a := check.Must(NewAssets())
	var b strings.Builder
	for _, name := range append(slices.Clone(a.needs["embed.js"]), "embed.js") {
		if name != "embed-words.js" {
			b.Write(a.bodies[name])
		}
	}
	source, has := b.String(), string(a.bodies["embed-words.js"])
	computed := regexp.MustCompile(`^(state|stock|yours|pay_within|enter|refused)_`) // by codes of the API
	for key := range check.Must(readWords(shopWords))["en"] {
		switch {
		case strings.Contains(source, `["`+key+`"`) || regexp.MustCompile(`say\([^()]*"`+key+`"`).MatchString(source):
			check.Same(t, "the element has "+key, strings.Contains(has, `"`+key+`":`), true)
		case strings.Contains(has, `"`+key+`":`) && !computed.MatchString(key):
			check.Same(t, "the element's "+key+" is named", strings.Contains(source, `"`+key+`"`) || strings.HasSuffix(key, "_wait"), true)
		}
	}
	for _, key := range []string{"state_open", "yours_late_more", "pay_within_hours", "enter_list", "sold_out_wait", "paused_wait", "refused_sold_out"} {
		check.Same(t, "the element has "+key, strings.Contains(has, `"`+key+`":`), true)
	}
}

// There is a text for every state of a sale, status of an order, and verdict.
func TestWordsCoverTheModel(t *testing.T) {
	all := check.Must(readWords(shopWords))
	want := func(prefix, value, suffix string) {
		key := prefix + value + suffix
		check.Same(t, "there is a text for "+key, all["en"][key] != "", true)
	}
	for _, state := range []model.SaleState{model.StateUpcoming, model.StateOpen, model.StatePaused, model.StateSoldOut, model.StateEnded} {
		want("state_", string(state), "")
	}
	for _, status := range []model.OrderStatus{model.OrderPending, model.OrderPaid, model.OrderCancelled, model.OrderExpired, model.OrderRefunded} {
		want("status_", string(status), "")
		want("yours_", string(status), "")
		want("yours_", string(status), "_more")
	}
	for _, state := range []model.EntryState{model.EntryCalled, model.EntrySpent, model.EntryLapsed, model.EntryLeft, model.EntryLost, model.EntryVoided, "waiting_draw", "spent_draw", "lost_draw"} {
		want("place_", string(state), "")
		want("place_", string(state), "_more")
	}
	want("status_", string(model.OrderQueued), "")
	want("status_", string(model.OrderRejected), "")
	for _, verdict := range []model.Verdict{
		model.NotFound, model.NotStarted, model.Ended, model.Paused, model.LimitReached, model.SoldOut, model.Unauthenticated, model.BadPath, model.Forbidden,
		model.NameTaken, model.NotPayable, model.NotCancellable, model.IdempotencyMismatch, model.RateLimited, model.TooFrequent, model.Unavailable,
		model.ReasonLost, model.ReasonFailed, model.NoLine, model.EntriesClosed, model.WorkRequired, model.NotYourTurn, model.CallEnded,
	} {
		want("refused_", string(verdict), "")
	}
}

func TestSayEscapes(t *testing.T) {
	w := words{"en": {"left": "{left} of {quota} <left>"}, "zh": {"left": "剩 {left} / {quota}"}}
	want := `<span lang="en">&lt;b&gt; of 10 &lt;left&gt;</span><span lang="zh">剩 &lt;b&gt; / 10</span>`
	check.Same(t, "text", string(check.Must(w.say("left", "left", "<b>", "quota", 10))), want)
	_, err := w.say("nothing")
	check.Same(t, "a missing key is an error", err != nil, true)
}

func TestMoney(t *testing.T) {
	for want, of := range map[string]struct {
		smallest int64
		currency string
	}{
		"¥0.00": {0, "CNY"}, "$0.05": {5, "USD"}, "€999.99": {99_999, "EUR"}, "£1,000.00": {100_000, "GBP"},
		"¥123,456,789.01": {123_456_789_01, "CNY"}, "9.90\u00a0SEK": {990, "SEK"},
		"1,250\u00a0JPY": {1250, "JPY"}, "0.005\u00a0KWD": {5, "KWD"}, "1,234.500\u00a0KWD": {1_234_500, "KWD"},
	} {
		check.Same(t, want, money(of.smallest, of.currency), want)
	}
}
