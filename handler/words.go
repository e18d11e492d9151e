package handler

import (
	_ "embed" // for words.json
	"encoding/json"
	"strconv"
	"strings"

	"flashsale/model"
	"flashsale/service"
)

// The languages of the API's texts, as indexes of lists that have one text for each language.
const (
	english = iota
	chinese
)

// problem is the HTTP answer to a verdict, with its texts and its encoded bodies by language. A body ends before the request id.
type problem struct {
	Status        int
	Title, Detail [2]string
	bodies        [2][]byte
}

//go:embed words.json
var wordFile []byte

// problems has the answers to refusals and errors. reasons has the texts for the reasons. They have placeholders, see word.
var problems, reasons = readWords()

func readWords() (map[model.Verdict]*problem, map[service.Reason][2]string) {
	var words struct {
		Problems map[model.Verdict]*problem
		Reasons  map[service.Reason][2]string
	}
	if err := json.Unmarshal(wordFile, &words); err != nil {
		panic(err) // the file has a mistake, so no program that uses this package starts
	}
	for verdict, p := range words.Problems {
		for language := range p.bodies {
			p.bodies[language] = encodeProblem(verdict, p.Status, p.Title[language], p.Detail[language], "", nil)
		}
	}
	return words.Problems, words.Reasons
}

// The reasons for refusals that package service does not name.
const (
	overSize      service.Reason = "over_size"
	otherType     service.Reason = "other_type"
	cutOff        service.Reason = "cut_off"
	emptyBody     service.Reason = "empty_body"
	notUTF8       service.Reason = "not_utf8"
	notJSON       service.Reason = "not_json"
	notAnObject   service.Reason = "not_an_object"
	unknownField  service.Reason = "unknown_field"
	repeatedField service.Reason = "repeated_field"
	missingField  service.Reason = "missing_field"
	wrongType     service.Reason = "wrong_type"
	notATime      service.Reason = "not_a_time"
	notAChoice    service.Reason = "not_a_choice"
	notACursor    service.Reason = "not_a_cursor"
	notAKey       service.Reason = "not_a_key"
	notAnID       service.Reason = "not_an_id"
	notSeconds    service.Reason = "not_seconds"
	overLimit     service.Reason = "over_limit"
	wrongLogIn    service.Reason = "wrong_log_in"
	notCSV        service.Reason = "not_csv"
	badNumber     service.Reason = "bad_number"
	badAmount     service.Reason = "bad_amount"
	badYesNo      service.Reason = "bad_yes_no"
	badMoment     service.Reason = "bad_moment"
	notAsInFirst  service.Reason = "not_as_in_first"
	notAnEvent    service.Reason = "not_an_event"
)

// word returns the text that says in one language what is wrong. {low} and {high} become amounts of the currency Value.
func word(i *service.Invalid, language int) string {
	return strings.NewReplacer(
		"{field}", i.Field, "{value}", quoted(i.Value),
		"{min}", strconv.FormatInt(i.Min, 10), "{max}", strconv.FormatInt(i.Max, 10),
		"{low}", model.Amount(i.Min, i.Value), "{high}", model.Amount(i.Max, i.Value),
	).Replace(reasons[i.Reason][language])
}
