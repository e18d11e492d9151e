package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"flashsale/app"
	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/lab/trial"
	"flashsale/strategy"
)

// validateLab checks the lab's options, and replaces the strategy "all" by the names of all strategies.
func validateLab(l *config.Lab) error {
	if len(l.Strategies) == 1 && l.Strategies[0] == "all" {
		l.Strategies = strategy.Names()
	}
	for i, name := range l.Strategies {
		if _, ok := strategy.Of(name); !ok || slices.Contains(l.Strategies[:i], name) {
			return fmt.Errorf("--strategies: want all, or some of %s, each once", strings.Join(strategy.Names(), ","))
		}
	}
	return cmp.Or(
		config.Refuse(l.Buyers < 1 || l.Buyers > 1_000_000, "--buyers: must be 1 to 1000000"),
		config.Refuse(l.Stock < 1 || l.Stock > 1_000_000, "--stock: must be 1 to 1000000"),
		config.Refuse(l.Concurrency < 1 || l.Concurrency > 10_000, "--concurrency: must be 1 to 10000"),
		config.Refuse(l.Instances < 1 || l.Instances > 8, "--instances: must be 1 to 8"),
		config.Refuse(l.Kill && l.Instances < 2, "--kill: needs --instances 2 or more, so that one is left"),
		config.Refuse(l.Out == "", "--out: needs a folder"),
	)
}

// runLab runs the strategies and writes the results to stdout and to files. It shows its progress on stderr.
func runLab(ctx context.Context, cmd config.Command, version string, stdout, stderr io.Writer) (err error) {
	if err := os.MkdirAll(cmd.Lab.Out, 0o750); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	bench, err := trial.Open(ctx, cmd.Settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bench.Close()) }()
	report, runErr := bench.Run(ctx, cmd.Lab.LabPlan, version, progressOn(stderr, cmd.Lab.Buyers))
	if report == nil {
		return runErr
	}
	page, figures, err := lab.WriteFiles(cmd.Lab.Out, report.WriteHTML, report)
	if err := errors.Join(runErr, report.WriteTable(stdout), err); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "\n%s has charts and explanations, %s the figures\n", page, figures); err != nil {
		return err
	}
	if report.Interrupted {
		return lab.ErrInterrupted
	}
	return nil
}

// progressOn returns a function that shows progress on one line if w is a terminal.
func progressOn(w io.Writer, buyers int) func(lab.Progress) {
	if !app.IsTerminal(w) {
		return func(lab.Progress) {}
	}
	return func(p lab.Progress) {
		const wipe = "\r\x1b[K"
		if p.Result != nil {
			_, _ = fmt.Fprint(w, wipe) // the next strategy or the table follows
			return
		}
		_, _ = fmt.Fprintf(w, wipe+"%d of %d: %s, %d of %d buyers", p.Index, p.Of, p.Strategy, p.Done, buyers)
	}
}
