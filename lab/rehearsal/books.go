package rehearsal

import (
	"fmt"
	"slices"
	"strings"

	"flashsale/model"
	"flashsale/service"
)

// The kinds of findings. Each makes the rehearsal fail.
const (
	Oversold     = "oversold"
	LostOrder    = "lost order"
	WrongRefusal = "wrong refusal"
	OverLimit    = "over the limit"
	WrongBooks   = "books"
	BrokenAnswer = "broken answer"
	GaveUp       = "gave up"
)

const (
	// mostExamples bounds the examples of a finding.
	mostExamples = 5
	// mostGaveUp is the fraction of the people who may give up, because some connections may break.
	mostGaveUp = 0.01
)

// Finding is something that was wrong.
type Finding struct {
	Kind     string   `json:"kind"`
	Count    int64    `json:"count"`
	Found    string   `json:"found"`
	Examples []string `json:"examples,omitempty"`
}

// String returns the finding in one line.
func (f Finding) String() string {
	line := fmt.Sprintf("%s: %d: %s", f.Kind, f.Count, f.Found)
	if len(f.Examples) > 0 {
		line += ": " + strings.Join(f.Examples, ", ")
	}
	return line
}

// findings collects what was wrong, in one Finding for each kind and text.
type findings struct{ list []Finding }

func (f *findings) add(kind, found, example string, n int64) {
	i := slices.IndexFunc(f.list, func(have Finding) bool { return have.Kind == kind && have.Found == found })
	if i < 0 {
		i = len(f.list)
		f.list = append(f.list, Finding{Kind: kind, Found: found})
	}
	f.list[i].Count += n
	if example != "" && len(f.list[i].Examples) < mostExamples {
		f.list[i].Examples = append(f.list[i].Examples, example)
	}
}

// books are the orders of a sale, and the result of its audit.
type books struct {
	orders map[string]model.Order // by id
	audit  service.Audit
}

// stands reports whether an order holds units.
func stands(o model.Order) bool { return o.Status == model.OrderPending || o.Status == model.OrderPaid }

// compare compares what buyers were told with the books. A buyer may have one unit. Nobody cancels, and no order expires during
// the run, so a unit that was sold stays sold.
func compare(list []told, b books) []Finding {
	var f findings
	stock := b.audit.Books.Stock
	standing, byUser := int64(0), map[string]int{}
	for _, o := range b.orders {
		if stands(o) {
			standing += int64(o.Quantity)
			byUser[o.UserID] += o.Quantity
		}
	}
	if standing > stock.Quota {
		f.add(Oversold, fmt.Sprintf("orders of %d units stand in the database, and the sale had %d", standing, stock.Quota), "", standing-stock.Quota)
	}
	confirmed := map[string]bool{}
	for _, t := range list {
		if t.order != "" && t.refusal == "" && t.status != model.OrderQueued {
			confirmed[t.order] = true
		}
	}
	if n := int64(len(confirmed)); n > stock.Quota {
		f.add(Oversold, fmt.Sprintf("%d buyers were told that they have a unit, and the sale had %d", n, stock.Quota), "", n-stock.Quota)
	}
	for user, units := range byUser {
		if units > 1 {
			f.add(OverLimit, "a buyer has more units than the limit of the sale, which is one", user, 1)
		}
	}
	// A queued attempt counts towards the user's limit, even if it is refused later.
	mayHave := map[string]bool{}
	for _, t := range list {
		user := userOf(t.buyer)
		mayHave[user] = mayHave[user] || byUser[user] > 0 || t.status == model.OrderQueued || t.status == model.OrderRejected
	}
	for _, t := range list {
		f.judgeOrder(t, b)
		f.judgeRefusal(t, byUser[userOf(t.buyer)] > 0, mayHave[userOf(t.buyer)], stock.Free())
	}
	for _, v := range b.audit.Violations {
		f.add(WrongBooks, v, "", 1)
	}
	if b.audit.Drifts() {
		f.add(WrongBooks, fmt.Sprintf("the gate has %+d units more than the database", b.audit.Drift), "", 1)
	}
	return f.list
}

// judgeOrder checks that an order of which a buyer was told is in the database with its units, that it belongs to the buyer, and
// that it is paid if the buyer was told so. Rejected and queued orders are left out.
func (f *findings) judgeOrder(t told, b books) {
	if t.order == "" || t.status == model.OrderQueued || t.status == model.OrderRejected {
		return
	}
	user, o := userOf(t.buyer), b.orders[t.order]
	example := user + " " + t.order
	switch {
	case o.ID == "":
		f.add(LostOrder, "a buyer was told of an order that is not in the database", example, 1)
	case o.UserID != user:
		f.add(LostOrder, "a buyer was told of an order that belongs to another", example, 1)
	case t.status == model.OrderPaid && o.Status != model.OrderPaid, !stands(o):
		f.add(LostOrder, fmt.Sprintf("an order is %s, and its buyer was told that it is %s", o.Status, t.status), example, 1)
	}
}

// judgeRefusal checks that a refusal was right: sold_out if no unit is left, limit_reached if the buyer has or may have had an
// order. Any other code is wrong. A person makes one attempt, so a refusal is also wrong if that person's order stands.
func (f *findings) judgeRefusal(t told, has, mayHave bool, free int64) {
	user := userOf(t.buyer)
	switch {
	case t.refusal == "":
	case t.refusal == model.SoldOut && free > 0:
		f.add(WrongRefusal, fmt.Sprintf("sold_out, and %d units are left", free), user, 1)
	case t.refusal == model.LimitReached && !mayHave:
		f.add(WrongRefusal, "limit_reached, and the buyer has no order", user, 1)
	case t.refusal != model.SoldOut && t.refusal != model.LimitReached:
		f.add(WrongRefusal, string(t.refusal), user, 1)
	case !t.bot && has:
		f.add(WrongRefusal, string(t.refusal)+", and the order of the attempt stands", user, 1)
	}
}

// judgeAnswers finds answers 5xx other than 503, and more people who gave up than mostGaveUp allows.
func judgeAnswers(stages []StageFigures, gaveUp []Count, people int) []Finding {
	var f findings
	for _, s := range stages {
		for _, a := range s.Answers {
			if strings.HasPrefix(a.What, "5") && !strings.HasPrefix(a.What, "503") {
				f.add(BrokenAnswer, a.What, string(s.Stage), int64(a.N))
			}
		}
	}
	n := 0
	for _, c := range gaveUp {
		n += c.N
	}
	if float64(n) > mostGaveUp*float64(people) {
		f.add(GaveUp, fmt.Sprintf("of %d people, where one in a hundred may", people), "", int64(n))
	}
	return f.list
}
