package service

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/repository"
	"flashsale/test/kit/check"
)

// What an operator may do, and when, is the same promise in each mode. TestHole64_Actions does each action in each phase of each
// mode, keeps the answers in docs/settings.md, and checks what was promised to buyers. An action or a mode that is not in
// these lists fails the test, until somebody has decided its cells.

type actionMode struct {
	name           string
	mode           model.Mode
	list, campaign bool
}

// actionModes are the modes of a sale, alone and in a campaign.
var actionModes = []actionMode{
	{"rush", model.ModeRush, false, false},
	{"rush+list", model.ModeRush, true, false},
	{"line", model.ModeLine, false, false},
	{"draw", model.ModeDraw, false, false},
	{"draw+list", model.ModeDraw, true, false},
	{"c-rush", model.ModeRush, false, true},
	{"c-line", model.ModeLine, false, true},
	{"c-draw", model.ModeDraw, false, true},
}

// actionPhases are the phases of a sale, and how a sale gets there from the phase before.
var actionPhases = []struct {
	name string
	on   func(s *actionSale)
}{
	{"before the start", func(*actionSale) {}},
	{"sealed", (*actionSale).seal},
	{"selling", (*actionSale).sell},
	{"sold out", func(s *actionSale) { s.sell(); s.sellOut() }},
	{"paused", func(s *actionSale) { s.sell(); s.sellOut(); s.status(model.SalePaused) }},
	{"ended", func(s *actionSale) { s.sell(); s.sellOut(); s.move("ends_at_ms", -time.Second); s.tend() }},
	{"paused, then ended", func(s *actionSale) {
		s.sell()
		s.sellOut()
		s.status(model.SalePaused)
		s.move("ends_at_ms", -time.Second)
		s.tend()
	}},
	{"closed", func(s *actionSale) { s.sell(); s.sellOut(); s.status(model.SaleClosed); s.tend() }},
}

// action is what an operator does, with the answer.
type action struct {
	name string
	do   func(s *actionSale) (model.Verdict, error)
}

// actions are all that operators can change of sales and campaigns. Those of SalePatch have the names that its fields have in the API.
var actions = []action{
	patch("title, description, image_url", func(_ *actionSale, p *SalePatch) {
		p.Title, p.Description, p.ImageURL = new("Another title"), new("Another text"), new("/another.webp")
	}),
	patch("starts_at, later", func(_ *actionSale, p *SalePatch) { p.StartsAt = new(time.Now().Add(90 * time.Minute)) }),
	patch("starts_at, earlier", func(_ *actionSale, p *SalePatch) { p.StartsAt = new(time.Now().Add(-2 * time.Hour)) }),
	patch("ends_at, later", func(_ *actionSale, p *SalePatch) { p.EndsAt = new(time.Now().Add(4 * time.Hour)) }),
	patch("ends_at, earlier", func(s *actionSale, p *SalePatch) { p.EndsAt = new(s.offer().EndsAt.Add(-time.Second)) }),
	patch("limit_per_user, more", func(_ *actionSale, p *SalePatch) { p.LimitPerUser = new(3) }),
	patch("limit_per_user, less", func(_ *actionSale, p *SalePatch) { p.LimitPerUser = new(1) }),
	patch("entries_at", func(s *actionSale, p *SalePatch) { p.EntriesAt = new(s.offer().StartsAt.Add(-10 * time.Minute)) }),
	patch("call_seconds", func(_ *actionSale, p *SalePatch) { p.CallSeconds = new(7200) }),
	patch("waiting_list, on", func(_ *actionSale, p *SalePatch) { p.WaitingList = new(true) }),
	patch("waiting_list, off", func(_ *actionSale, p *SalePatch) { p.WaitingList = new(false) }),
	patch("quota, more", func(_ *actionSale, p *SalePatch) { p.Quota = new(int64(2)) }),
	patch("price_cents, original_price_cents", func(_ *actionSale, p *SalePatch) {
		p.PriceCents, p.OriginalPriceCents = new(int64(90)), new(int64(200))
	}),
	patch("currency, pay_timeout_seconds", func(_ *actionSale, p *SalePatch) { p.Currency, p.PayTimeoutSeconds = new("EUR"), new(300) }),
	patch("beacon", func(s *actionSale, p *SalePatch) { p.Beacon = new(true) }),
	patch("entry_work", func(_ *actionSale, p *SalePatch) { p.EntryWork = new(int64(1000)) }),
	patch("stock_shown", func(_ *actionSale, p *SalePatch) { p.StockShown = new(model.StockFew) }),
	patch("add_quota", func(_ *actionSale, p *SalePatch) { p.AddQuota = 1 }),
	{"pause", func(s *actionSale) (model.Verdict, error) { return s.status(model.SalePaused), nil }},
	{"resume", func(s *actionSale) (model.Verdict, error) { return s.status(model.SaleLive), nil }},
	{"pause a size alone", func(s *actionSale) (model.Verdict, error) { return s.alone(model.SalePaused) }},
	{"resume a size alone", func(s *actionSale) (model.Verdict, error) { return s.alone(model.SaleLive) }},
	{"close", func(s *actionSale) (model.Verdict, error) { return s.status(model.SaleClosed), nil }},
	{"add a size", func(s *actionSale) (model.Verdict, error) {
		if s.campaign == "" {
			return "", nil
		}
		added := model.NewSale{Quota: 1, Sale: model.Sale{Variant: "another", PriceCents: 100, LimitPerUser: 2, PayTimeoutSeconds: 600}}
		_, verdict, _, err := s.campaigns.Add(s.Context(), s.campaign, added, "op")
		return verdict, err
	}},
	{"extend calls", func(s *actionSale) (model.Verdict, error) {
		_, verdict, _, err := s.sales.ExtendCalls(s.Context(), s.sale, 60, "op")
		return verdict, err
	}},
	{"void entries", func(s *actionSale) (model.Verdict, error) {
		_, verdict, _, err := s.sales.VoidEntries(s.Context(), s.sale, model.VoidRule{Users: []string{"nobody"}, Reason: "a bot"}, "op")
		return verdict, err
	}},
}

// patch is a change of one field. The fields that a campaign has for all its sales are changed there.
func patch(name string, edit func(s *actionSale, p *SalePatch)) action {
	return action{name, func(s *actionSale) (verdict model.Verdict, err error) {
		var p SalePatch
		edit(s, &p)
		id := s.sale
		switch {
		case s.campaign == "":
		case (p.EntriesAt != nil || p.CallSeconds != nil || p.Beacon != nil || p.EntryWork != nil) && s.offer().HasLine():
			id = s.campaign // as a sale: it has the line
		case p.EntriesAt != nil, p.CallSeconds != nil, p.Beacon != nil, p.EntryWork != nil:
		case p.LimitPerUser != nil, p.AddQuota > 0, p.Quota != nil, p.PriceCents != nil, p.WaitingList != nil:
		default:
			_, verdict, _, err = s.campaigns.Patch(s.Context(), s.campaign, p.CampaignPatch, "op")
			return verdict, err
		}
		_, verdict, _, err = s.sales.Patch(s.Context(), id, p, "op")
		return verdict, err
	}}
}

// actionSale is a sale of one unit, in a database of its own, with its services.
type actionSale struct {
	*testing.T
	db             *repository.Store
	raw            *sql.DB
	sales          *Sales
	campaigns      *Campaigns
	caller         *Caller
	sale, campaign string
	key            int
}

// newActionSale copies the database in a file, which has the tables and no rows.
func newActionSale(t *testing.T, empty []byte) *actionSale {
	t.Helper()
	path := filepath.Join(t.TempDir(), "flashsale.db")
	check.Done(os.WriteFile(path, empty, 0o600))
	db := check.Must(repository.Open(t.Context(), "sqlite:"+path, 1))
	raw := check.Must(sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)"))
	t.Cleanup(func() { _, _ = raw.Close(), db.Close() })
	catalog, ids := NewCatalog(db, time.Now), purchaseIDs
	gates := NewGates(db, newGatehouse(), catalog, true, discard)
	s := &actionSale{T: t, db: db, raw: raw, caller: &Caller{Store: db, Catalog: catalog, IDs: ids}}
	s.sales = &Sales{Store: db, SaleHistory: db, Gate: &shop{gatehouse: newGatehouse()}, Gates: gates, Catalog: catalog, IDs: ids, Takes: model.TakesAll, Log: discard}
	s.campaigns = &Campaigns{Store: db, Sales: s.sales}
	return s
}

// open makes the sale, of one unit, which starts in an hour. If it has a line before its start, ann and bob have entered.
func (s *actionSale) open(mode model.Mode, list, campaign bool) {
	sale := model.Sale{
		Title: "a sale", PriceCents: 100, Currency: "CNY", LimitPerUser: 2, PayTimeoutSeconds: 600, Shards: 1, Mode: mode, WaitingList: list,
		StartsAt: time.Now().Add(time.Hour), EndsAt: time.Now().Add(3 * time.Hour),
	}
	if sale.HasLine() && (mode != model.ModeDraw || sale.WaitingList || campaign) { // the others call nobody
		sale.CallSeconds = 3600
	}
	if campaign {
		sale.Variant = "one"
		sizes := []model.NewSale{{Sale: sale, Quota: 1}}
		made, invalid, err := s.campaigns.Create(s.Context(), model.Campaign{Title: "a campaign", LimitPerUser: 2}, sizes, "op")
		check.Same(s, "made", []any{invalid, err}, []any{(*Invalid)(nil), nil})
		s.sale, s.campaign = made[0].ID, made[0].Campaign.ID
	} else {
		made, invalid, err := s.sales.Create(s.Context(), sale, 1, "op")
		check.Same(s, "made", []any{invalid, err}, []any{(*Invalid)(nil), nil})
		s.sale = made.ID
	}
	if mode != model.ModeRush {
		s.enter("ann", "bob")
	}
}

func (s *actionSale) offer() model.Offer {
	s.Helper()
	offer, ok, err := s.db.Offer(s.Context(), s.sale)
	check.Same(s, "the sale", []any{ok, err}, []any{true, nil})
	return offer
}

func (s *actionSale) enter(users ...string) (verdict model.Verdict) {
	s.Helper()
	wishes := make([]model.LineEntry, len(users))
	for i, user := range users {
		wishes[i] = model.LineEntry{UserID: user, Quantity: 1}
	}
	_, verdict, err := s.db.Enter(s.Context(), s.offer().LineID(), wishes)
	check.NoError(s, err)
	return verdict
}

// move moves a time of the sale, and of its campaign's line, to a while from now.
func (s *actionSale) move(column string, by time.Duration) {
	s.Helper()
	_, err := s.raw.ExecContext(s.Context(), "UPDATE sales SET "+column+" = ? WHERE id IN (?, ?)", time.Now().Add(by).UnixMilli(), s.sale, s.campaign)
	check.NoError(s, err, s.sales.Catalog.Refresh(s.Context()))
}

// tend lets a caller look after the line as often as it takes.
func (s *actionSale) tend() {
	s.Helper()
	for range 4 {
		check.NoError(s, s.sales.Catalog.Refresh(s.Context()))
		for _, id := range s.caller.Due() {
			check.NoError(s, s.caller.Tend(s.Context(), id))
		}
	}
}

// seal starts the sale. A line has the number of its entries and no order yet; a draw has its order and no winners.
func (s *actionSale) seal() {
	s.move("starts_at_ms", -time.Hour)
	for _, id := range s.caller.Due() {
		check.NoError(s, second(s.db.TendLine(s.Context(), id)))
		if s.offer().Mode == model.ModeDraw {
			check.NoError(s, s.caller.Tend(s.Context(), id))
		}
	}
	check.NoError(s, s.sales.Catalog.Refresh(s.Context()))
}

func second[T any](_ T, err error) error { return err }

// sell starts the sale. In line, ann is called, and bob waits; in a draw, one of them has won.
func (s *actionSale) sell() {
	s.seal()
	s.tend()
}

// sellOut sells the unit of a rush. With a waiting list, it comes back then, and ann is called.
func (s *actionSale) sellOut() {
	if s.offer().Mode != model.ModeRush {
		return
	}
	check.Same(s, "the unit is sold", s.buys("first"), model.Accepted)
	if s.offer().WaitingList {
		s.enter("ann", "bob")
		_, verdict, err := s.db.Cancel(s.Context(), "first", s.attempt("first").ID)
		check.Same(s, "cancelled", []any{verdict, err}, []any{model.Accepted, nil})
		s.tend()
	}
}

func (s *actionSale) attempt(user string) model.Attempt {
	key := fmt.Sprint("key ", s.key)
	return model.Attempt{ID: purchaseIDs.Derive(user, s.sale, key), SaleID: s.sale, UserID: user, Quantity: 1, IdempotencyKey: key}
}

// buys lets a user try to buy a unit, in the way that the sale has.
func (s *actionSale) buys(user string) model.Verdict {
	s.Helper()
	deduct := s.db.Deduct
	if s.offer().Stock.Lined == model.InLine {
		deduct = s.db.SellCalled
	}
	outcomes, err := deduct(s.Context(), s.sale, []model.Attempt{s.attempt(user)})
	check.NoError(s, err)
	return outcomes[0].Verdict
}

func (s *actionSale) status(status model.SaleStatus) model.Verdict {
	s.Helper()
	var verdict model.Verdict
	var err error
	if s.campaign == "" {
		_, verdict, err = s.sales.SetStatus(s.Context(), s.sale, status, string(status), "op")
	} else {
		_, verdict, err = s.campaigns.SetStatus(s.Context(), s.campaign, status, string(status), "op")
	}
	check.NoError(s, err)
	return verdict
}

// alone gives a size of a campaign another status, by its own id.
func (s *actionSale) alone(status model.SaleStatus) (model.Verdict, error) {
	if s.campaign == "" {
		return "", nil
	}
	_, verdict, err := s.sales.SetStatus(s.Context(), s.sale, status, string(status), "op")
	return verdict, err
}

// states returns the states of the entries of ann and bob.
func (s *actionSale) states() (states [2]model.EntryState) {
	s.Helper()
	for i, user := range []string{"ann", "bob"} {
		e, _, err := s.db.EntryOf(s.Context(), s.offer().LineID(), user)
		check.NoError(s, err)
		states[i] = e.State
	}
	return states
}

// keeps checks, after an action, what buyers were promised before it.
func (s *actionSale) keeps(cell string, verdict model.Verdict, before model.Offer, states [2]model.EntryState) {
	s.Helper()
	offer := s.offer()
	if verdict != model.Accepted {
		check.Same(s, cell+": nothing is changed by a refusal", offer, before)
	}
	s.tend()
	// Two hours pass, in which nobody buys. A call ends only if its buyer could have bought.
	now := time.Now()
	sells := offer.Judge(now) == model.Accepted
	if !sells {
		_, err := s.raw.ExecContext(s.Context(), "UPDATE calls SET until_ms = until_ms - 7200000")
		check.NoError(s, err)
		s.tend()
	}
	after := s.states()
	for i, was := range states {
		is := after[i]
		over := offer.Judge(now) == model.Ended || s.offer().Line.Phase == model.PhaseOver
		switch {
		case was == is,
			was == model.EntryWaiting && (is == model.EntryCalled || is == model.EntrySpent) && sells,
			(was == model.EntryWaiting || was == model.EntryCalled) && is == model.EntryLost && over:
		default:
			s.Errorf("%s: an entry was %s and is %s", cell, was, is)
		}
	}
	books, _, err := s.db.Books(s.Context(), s.sale)
	check.Same(s, cell+": books", []any{books.Violations(), err}, []any{[]string(nil), nil})

	// What sells can be bought, and nothing else can.
	s.key++
	buyer, want := "new", offer.Judge(now)
	if after[0] == model.EntryCalled {
		buyer = "ann"
	} else if after[1] == model.EntryCalled {
		buyer = "bob"
	}
	got := s.buys(buyer)
	switch {
	case want != model.Accepted:
		check.Same(s, cell+": a purchase", got, want)
	case buyer != "new" || offer.Stock.Lined != model.InLine && offer.Stock.Available > 0:
		check.Same(s, cell+": a purchase", got, model.Accepted)
	case got == model.Accepted:
		s.Errorf("%s: a unit was sold that there was not", cell)
	}
	if want != model.Accepted {
		return
	}
	// No unit stays behind: whoever enters is called, as long as units are left.
	for i := range 4 {
		s.tend()
		if o := s.offer(); o.Stock.Free() == 0 || o.Stock.Available > 0 {
			return
		}
		s.enter(fmt.Sprint("new ", i))
		s.tend()
		for _, user := range []string{"ann", "bob", fmt.Sprint("new ", i)} {
			s.buys(user)
		}
	}
	s.Errorf("%s: %d units can't be sold", cell, s.offer().Stock.Free())
}

func TestHole64_Actions(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[SalePatch]()) {
		changes := func(a action) bool {
			return strings.Contains(strings.ReplaceAll(a.name, "_", ""), strings.ToLower(field.Name))
		}
		if !field.Anonymous && field.Name != "IfQuota" && !slices.ContainsFunc(actions, changes) {
			t.Errorf("no action changes %s", field.Name)
		}
	}
	for _, mode := range model.Modes {
		if !slices.ContainsFunc(actionModes, func(m actionMode) bool { return m.mode == mode }) {
			t.Errorf("the mode %s is in no row", mode)
		}
	}
	table := actionTable(t)
	const file = "../docs/settings.md"
	doc := string(check.Must(os.ReadFile(file)))
	from, to := "<!-- actions -->\n", "<!-- /actions -->"
	head, rest, _ := strings.Cut(doc, from)
	shown, tail, found := strings.Cut(rest, to)
	if os.Getenv("WRITE_ACTIONS") != "" && found {
		check.NoError(t, os.WriteFile(file, []byte(head+from+table+to+tail), 0o600))
	}
	if shown != table {
		t.Errorf("docs/settings.md shows other answers. Decide whether these are right; WRITE_ACTIONS=1 writes them:\n%s", table)
	}
}

// actionTable does each action in each phase of each mode, and returns the answers as a table.
func actionTable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "empty.db")
	db := check.Must(repository.Open(t.Context(), "sqlite:"+path, 1))
	check.Done(db.MigrateUp(t.Context()))
	check.Done(db.Close())
	empty := check.Must(os.ReadFile(path))
	cells := make([][]string, len(actionPhases)) // by phase and action
	for j, phase := range actionPhases {
		for _, a := range actions {
			answers := map[model.Verdict][]string{}
			for _, m := range actionModes {
				t.Run(strings.Join([]string{a.name, phase.name, m.name}, "/"), func(t *testing.T) {
					s := newActionSale(t, empty)
					s.open(m.mode, m.list, m.campaign)
					phase.on(s)
					before, states := s.offer(), s.states()
					verdict, err := a.do(s)
					check.NoError(t, err)
					if verdict == "" {
						return
					}
					answers[verdict] = append(answers[verdict], m.name)
					s.keeps(t.Name(), verdict, before, states)
				})
			}
			cells[j] = append(cells[j], actionCell(answers))
		}
	}
	// Phases with the same answers share a column.
	head, line, rows := "| action |", "|---|", make([]string, len(actions))
	for j, phase := range actionPhases {
		if slices.ContainsFunc(cells[:j], func(of []string) bool { return slices.Equal(of, cells[j]) }) {
			continue
		}
		name := phase.name
		for k := j + 1; k < len(cells); k++ {
			if slices.Equal(cells[k], cells[j]) {
				name += "; " + actionPhases[k].name
			}
		}
		head, line = head+" "+name+" |", line+"---|"
		for i, cell := range cells[j] {
			rows[i] += " " + cell + " |"
		}
	}
	for i, a := range actions {
		rows[i] = "| " + a.name + " |" + rows[i] + "\n"
	}
	return head + "\n" + line + "\n" + strings.Join(rows, "")
}

// actionCell shows the answers of a cell, the most frequent one first, and of the others for which modes they are.
func actionCell(answers map[model.Verdict][]string) string {
	verdicts := make([]model.Verdict, 0, len(answers))
	for v := range answers {
		verdicts = append(verdicts, v)
	}
	slices.SortFunc(verdicts, func(a, b model.Verdict) int {
		return 1000*(len(answers[b])-len(answers[a])) + strings.Compare(string(a), string(b))
	})
	shown := make([]string, len(verdicts))
	for i, v := range verdicts {
		shown[i] = "`" + string(v) + "`"
		if v == model.Accepted {
			shown[i] = "yes"
		}
		if i > 0 {
			shown[i] = strings.Join(answers[v], ", ") + ": " + shown[i]
		}
	}
	return strings.Join(shown, "; ")
}
