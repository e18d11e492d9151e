package handler

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"flashsale/internal/prepared"
	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

const (
	// proofReaders is how many proofs an instance sends at the same time, and proofReadersOfOne how many of them to one client.
	// Each proof takes about 100 KB of memory, for a page of entries.
	proofReaders, proofReadersOfOne = 500, 10
	drawMaxAge                      = "public, max-age=3600" // the Cache-Control of a proof
)

// lineView is the public state of a line.
type lineView struct {
	Mode       model.Mode  `json:"mode"`
	Phase      model.Phase `json:"phase"`
	Entries    int64       `json:"entries"`
	N          *int64      `json:"n,omitempty"` // entries before the seal
	Root       string      `json:"root,omitempty"`
	Secret     string      `json:"secret,omitempty"`
	Seed       string      `json:"seed,omitempty"`
	Commitment string      `json:"commitment"`
	Round      int64       `json:"round,omitempty"` // of the beacon, from which the seed follows
	Randomness string      `json:"randomness,omitempty"`
	Signature  string      `json:"signature,omitempty"`
	FirstAt    *stamp      `json:"first_at,omitempty"` // when the first entry came
	Serving    int64       `json:"serving"`
	Left       *int64      `json:"left,omitempty"` // units in no pending or paid order
}

func viewLine(o model.Offer, state model.SaleState) lineView {
	v := lineView{
		Mode: o.Mode, Phase: o.Line.Phase, Entries: o.Line.Entries, Root: o.Line.Root, Secret: o.Line.Secret, Seed: o.Line.Seed,
		Commitment: o.Line.Commitment, Serving: o.Line.Serving, Left: stockFor(o, o.StockShown).Available,
		Round: o.Line.Round, Randomness: o.Line.Randomness, Signature: o.Line.Signature, FirstAt: optional(o.Line.FirstAt),
	}
	if o.Mode != model.ModeRush && o.Line.Phase != model.PhaseEntering {
		v.N = &o.Line.Sealed
	}
	if state == model.StateEnded {
		v.Phase = model.PhaseOver
	}
	return v
}

// Lines shows the lines of sales, takes entries, proves the order of entries, and lets operators change lines.
type Lines struct {
	*Offers
	Service *service.Lines
	Proofs  *service.Proofs
	Sales   *service.Sales
	Closing <-chan struct{} // closed when the server stops: proofs end
}

// get answers with the state of a sale's line, or refuses as NoLine if the sale is not in line.
func (l *Lines) get() gin.HandlerFunc {
	pages := newSalePages()
	return func(c *gin.Context) {
		offer, ok := l.offer(c)
		if !ok {
			return
		}
		if offer.Stock.Lined != model.InLine {
			refuse(c, model.NoLine)
			return
		}
		of := l.now(offer)
		pages.send(c, offer.ID, of, func() *prepared.Answer { return salesJSON(viewLine(offer, of.state)) })
	}
}

// enter makes the user's entry, or finds it.
func (l *Lines) enter(c *gin.Context) {
	body := struct {
		Quantity int    `json:"quantity"`
		Altcha   string `json:"altcha"` // the solution of a challenge, in the field where ALTCHA's widget has it
	}{Quantity: 1}
	if !decode(c, maxBodyBytes, &body) {
		return
	}
	e, ticket, verdict, err := l.Service.Enter(c.Request.Context(), userOf(c), c.Param("sale"), body.Quantity, body.Altcha)
	status := http.StatusOK
	if e.New {
		status = http.StatusCreated
	}
	invalid := &service.Invalid{Field: "quantity", Reason: overLimit}
	answerChange(c, status, gin.H{"number": e.Number, "quantity": e.Quantity, "ticket": ticket}, verdict, invalid, err)
}

// challenge answers with the work that the user has to do before entering.
func (l *Lines) challenge(c *gin.Context) {
	challenge, verdict, err := l.Service.Challenge(c.Request.Context(), userOf(c), c.Param("sale"))
	answer(c, http.StatusOK, challenge, verdict, err)
}

// entryView is a user's own entry. Rank is missing until the order is fixed. Units and Until are those of the entry's call.
type entryView struct {
	Number   int64            `json:"number"`
	Rank     *int64           `json:"rank,omitempty"`
	Quantity int              `json:"quantity"`
	State    model.EntryState `json:"state"`
	Units    int              `json:"units,omitempty"`
	Until    *stamp           `json:"until,omitempty"`
}

func (l *Lines) mine(c *gin.Context) {
	e, rank, verdict, err := l.Service.Mine(c.Request.Context(), userOf(c), c.Param("sale"))
	answer(c, http.StatusOK, entryView{e.Number, known(rank), e.Quantity, e.State, e.Units, optional(e.Until)}, verdict, err)
}

func (l *Lines) leave(c *gin.Context) {
	verdict, err := l.Service.Leave(c.Request.Context(), userOf(c), c.Param("sale"))
	answer(c, http.StatusOK, gin.H{"state": model.EntryLeft}, verdict, err)
}

// draw sends the document that proves the order of a line and the winners of a draw, in parts, since the document may be long.
func (l *Lines) draw() gin.HandlerFunc {
	readers := middleware.NewPlaces(proofReaders, proofReadersOfOne)
	return func(c *gin.Context) {
		leave, ok := readers.Take(c)
		if !ok {
			return
		}
		defer leave()
		ctx, cancel := context.WithTimeout(c.Request.Context(), exportLimit)
		defer cancel()
		out := &download{c: c, closing: l.Closing, header: http.Header{"Content-Type": {jsonType}, "Cache-Control": {drawMaxAge}}}
		if !isHead(c) {
			out.end(l.Proofs.Write(ctx, out, c.Param("sale")))
			return
		}
		_, verdict, err := l.Proofs.Ready(ctx, c.Param("sale"))
		if err == nil && verdict == model.Accepted {
			out.begin()
		}
		out.end(verdict, err)
	}
}

// proof answers with the hashes that prove that the user's entry is in the Merkle tree under the line's root.
func (l *Lines) proof(c *gin.Context) {
	number, tag, path, verdict, err := l.Proofs.Path(c.Request.Context(), userOf(c), c.Param("sale"))
	answer(c, http.StatusOK, gin.H{"number": number, "tag": tag, "path": path}, verdict, err)
}

type extendBody struct {
	Seconds int `json:"seconds"`
}

// extend makes the calls of a sale's line end later.
func (l *Lines) extend(c *gin.Context, body extendBody) {
	calls, verdict, invalid, err := l.Sales.ExtendCalls(c.Request.Context(), c.Param("sale"), body.Seconds, userOf(c))
	answerChange(c, http.StatusOK, gin.H{"calls": calls}, verdict, invalid, err)
}

// void removes entries from a sale's line before the seal.
func (l *Lines) void(c *gin.Context) {
	rule := model.VoidRule{From: -1, To: -1} // so that from and to are required if there are no users
	if !decode(c, maxOperatorBodyBytes, &rule) {
		return
	}
	voided, verdict, invalid, err := l.Sales.VoidEntries(c.Request.Context(), c.Param("sale"), rule, userOf(c))
	answerChange(c, http.StatusOK, gin.H{"voided": voided}, verdict, invalid, err)
}

// known returns nil for a rank that is not known.
func known(rank int64) *int64 {
	if rank < 0 {
		return nil
	}
	return &rank
}
