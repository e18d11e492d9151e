package handler

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"flashsale/lab"
	"flashsale/model"
)

// Lab lets operators compare the strategies, and shows the comparisons.
type Lab struct {
	Desk     *lab.Desk  // nil: this instance has no lab
	Stores   lab.Stores // without their passwords
	Consoles *Consoles
}

// there refuses a request with NotFound if this instance has no lab.
func (l *Lab) there(c *gin.Context) {
	if l.Desk == nil {
		refuse(c, model.NotFound)
	}
}

type labBody struct {
	model.LabPlan
	WhileOpen bool `json:"while_open"`
}

func (l *Lab) start(c *gin.Context, body labBody) {
	run, verdict, invalid := l.Desk.Start(body.LabPlan, body.WhileOpen)
	answerChange(c, http.StatusAccepted, gin.H{"run": viewLabRun(run)}, verdict, invalid, nil)
}

// stop stops the run under way, and answers with it if it is not over yet.
func (l *Lab) stop(c *gin.Context) {
	l.Desk.Stop()
	c.JSON(http.StatusOK, gin.H{"run": l.running()})
}

// running returns the view of the run under way, or nil.
func (l *Lab) running() *labRunView {
	run, _ := l.Desk.Newest()
	if run != nil && run.Over {
		run = nil
	}
	return viewLabRun(run)
}

// show answers with the strategies, stores and limits of the lab, the run under way, and the reports.
func (l *Lab) show(c *gin.Context) {
	reports := each(l.Desk.Reports(), func(r lab.Shelved) gin.H {
		return gin.H{
			"id": r.ID, "at": stamp(r.StartedAt), "strategies": each(r.Strategies, func(one *lab.Result) string { return one.Strategy }),
			"buyers": r.Buyers, "stock": r.Stock, "concurrency": r.Concurrency,
			"machine": r.Machine.String(), "database": r.Stores.Database, "redis": r.Stores.Redis, "url": reportURL(r.ID),
		}
	})
	c.JSON(http.StatusOK, gin.H{
		"running": l.running(), "reports": reports, "strategies": l.Desk.Strategies(),
		"stores": l.Stores, "limits": gin.H{"buyers": lab.MaxBuyers, "stock": lab.MaxStock, "concurrency": lab.MaxConcurrency},
	})
}

func reportURL(id string) string { return "/lab/reports/" + id }

// labRunView is a run as the console sees it.
type labRunView struct {
	StartedAt stamp `json:"started_at"`
	*lab.State
}

// viewLabRun returns nil for no run.
func viewLabRun(r *lab.State) *labRunView {
	if r == nil {
		return nil
	}
	return &labRunView{stamp(r.StartedAt), r}
}

// events streams the state of the newest run, also of one that is over: progress events, and a done event when the run is over.
func (l *Lab) events(c *gin.Context) {
	var said *lab.State
	l.Consoles.stream(c, func() (frames []byte, changed <-chan struct{}) {
		run, changed := l.Desk.Newest()
		if run == said {
			return nil, changed
		}
		said = run
		frames = appendEvent(nil, "progress", viewLabRun(run))
		if run.Over {
			url := ""
			if run.ReportID != "" {
				url = reportURL(run.ReportID)
			}
			frames = appendEvent(frames, "done", gin.H{"id": run.ReportID, "url": url, "stopped": run.Stopped, "failed": run.Failed})
		}
		return frames, changed
	})
}

// report answers with a report as a page, or as JSON if the id ends in .json. Whoever has the id may read the report.
func (l *Lab) report(c *gin.Context) {
	id, figures := strings.CutSuffix(c.Param("report"), ".json")
	report, ok, err := l.Desk.Report(id)
	var body bytes.Buffer
	switch {
	case err != nil || !ok:
	case figures:
		err = lab.WriteJSON(&body, report)
	default:
		err = report.WriteHTML(&body)
	}
	switch {
	case err != nil || !ok:
		answer(c, http.StatusOK, nil, model.NotFound, err)
	case figures:
		c.Data(http.StatusOK, jsonType, body.Bytes())
	default:
		c.Header("Content-Security-Policy", lab.PagePolicy())
		c.Data(http.StatusOK, "text/html; charset=utf-8", body.Bytes())
	}
}
