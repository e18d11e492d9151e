package handler

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// RehearsalStore has the results of rehearsals. Rehearsals returns them without their reports, the newest first. Rehearsal
// returns the result with an id, and its report; ok is false if there is none.
type RehearsalStore interface {
	Rehearsals(ctx context.Context) ([]model.Rehearsal, error)
	Rehearsal(ctx context.Context, id int64) (r model.Rehearsal, ok bool, err error)
}

type rehearsalView struct {
	ID          string          `json:"id"`
	At          stamp           `json:"at"`
	Version     string          `json:"version"`
	SameVersion bool            `json:"same_version"` // as this instance
	Verdict     string          `json:"verdict"`
	Buyers      int64           `json:"buyers"`
	Units       int64           `json:"units"`
	PerSecond   int64           `json:"peak_per_second"`
	Report      json.RawMessage `json:"report,omitempty"`
}

// Rehearsals shows the results of rehearsals, and whether each was made with this instance's version.
type Rehearsals struct {
	Store   RehearsalStore
	Version string
}

func (h *Rehearsals) view(r model.Rehearsal) rehearsalView {
	return rehearsalView{
		ID: strconv.FormatInt(r.ID, 10), At: stamp(r.At), Version: r.Version, SameVersion: r.Version == h.Version, Verdict: r.Verdict,
		Buyers: r.Buyers, Units: r.Units, PerSecond: r.PerSecond, Report: r.Report,
	}
}

// list answers with the stored rehearsals, the newest first.
func (h *Rehearsals) list(c *gin.Context) {
	list, err := h.Store.Rehearsals(c.Request.Context())
	answer(c, http.StatusOK, gin.H{"rehearsals": each(list, h.view)}, model.Accepted, err)
}

func (h *Rehearsals) get(c *gin.Context) {
	id, _ := strconv.ParseInt(c.Param("rehearsal"), 10, 64) // a wrong id becomes a number that no rehearsal has
	if r, ok, err := h.Store.Rehearsal(c.Request.Context(), id); found(c, ok, err) {
		c.JSON(http.StatusOK, h.view(r))
	}
}
