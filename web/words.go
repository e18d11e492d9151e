package web

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"flashsale/model"
)

// wordFiles hold the words of the pages: in each folder one file for each language. Templates and scripts use the same words.
//
//go:embed words
var wordFiles embed.FS

// Folders of words. Pages of the shop do not need the words of the console.
const (
	shopWords    = "words/shop"
	consoleWords = "words/console"
)

// wordModules are the modules with words. Each has the texts of a folder whose keys match an expression.
var wordModules = map[string]struct{ folder, keys string }{
	"words.js": {shopWords, ""}, "console-words.js": {consoleWords, ""},
	"embed-words.js": {shopWords, `^((holding|offline|pay|refused|starts|state|stock|units|yours)(_.*)?|` +
		`(back|buy|connection|enter|paused|sold_out)_(broken|draw|free|line|list|more|to_sale|wait)|` +
		`ask_again|back|back_some|buy|connecting|days|ended_at|ends_in|instead_of|left|limit|live|no_answer|quantity|see_orders|started)$`},
}

// symbols are written before an amount. A currency without a symbol has its code after the amount.
var symbols = map[string]string{"CNY": "¥", "EUR": "€", "GBP": "£", "USD": "$"}

// words are the texts of each language by their keys. A text may contain placeholders for values, such as {n}.
type words map[string]map[string]string

func readWords(folders ...string) (words, error) {
	all := words{}
	for _, folder := range folders {
		files, err := wordFiles.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			name := path.Join(folder, file.Name())
			raw, err := wordFiles.ReadFile(name)
			if err != nil {
				return nil, err
			}
			language := strings.TrimSuffix(file.Name(), path.Ext(name))
			texts := all[language]
			if err := json.Unmarshal(raw, &texts); err != nil { // adds to the texts of the folders before
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all[language] = texts
		}
	}
	return all, nil
}

func (w words) languages() []string { return slices.Sorted(maps.Keys(w)) }

// say returns a text in every language, of which the style sheet shows one. It returns an error if a language lacks the text. The
// values are pairs of the name of a placeholder and what replaces it.
func (w words) say(key string, values ...any) (template.HTML, error) {
	var b strings.Builder
	for _, language := range w.languages() {
		text, ok := w[language][key]
		if !ok {
			return "", fmt.Errorf("no word for %q in %s", key, language)
		}
		for i := 0; i+1 < len(values); i += 2 {
			text = strings.ReplaceAll(text, fmt.Sprintf("{%v}", values[i]), fmt.Sprint(values[i+1]))
		}
		fmt.Fprintf(&b, `<span lang="%s">%s</span>`, language, template.HTMLEscapeString(text))
	}
	return template.HTML(b.String()), nil //nolint:gosec // escaped above
}

// wordsModule returns the source of one of the wordModules, which also has symbols and model.Currencies.
func wordsModule(name string) ([]byte, error) {
	all, err := readWords(wordModules[name].folder)
	if err != nil {
		return nil, err
	}
	keys := regexp.MustCompile(wordModules[name].keys)
	for _, texts := range all {
		maps.DeleteFunc(texts, func(key, _ string) bool { return !keys.MatchString(key) })
	}
	texts, err := json.Marshal([]any{all, symbols, model.Currencies})
	return fmt.Appendf(nil, "import { learn } from \"./i18n.js\";\nlearn(...%s);\n", texts), err
}

// money writes an amount, as i18n.js does.
func money(smallest int64, currency string) string {
	amount := grouped(model.Amount(smallest, currency))
	if symbol, ok := symbols[currency]; ok {
		return symbol + amount
	}
	return amount + "\u00a0" + currency
}

// number writes a whole number that is not negative, with commas between thousands, as i18n.js does.
func number(n int64) string { return grouped(strconv.FormatInt(n, 10)) }

func grouped(digits string) string {
	for i := strings.IndexByte(digits+".", '.') - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
