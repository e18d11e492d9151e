// Package command runs the commands of the program.
package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"flashsale/app"
	"flashsale/internal/config"
	"flashsale/lab/preflight"
	"flashsale/lab/rehearsal"
	"flashsale/lab/trial"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service/auth"
)

// ErrViolation means that an audit was not OK.
var ErrViolation = errors.New("the books don't balance")

// Execute runs a command to its end and returns its error. Validate must have accepted the command.
func Execute(ctx context.Context, cmd config.Command, version string, stdout, stderr io.Writer) (err error) {
	w := bufio.NewWriter(stdout) // Flush also returns an error of an earlier write
	defer func() { err = errors.Join(err, w.Flush()) }()
	switch cmd.Name {
	case "serve":
		return serve(ctx, cmd.Settings, version, w, stderr)
	case "tokens":
		return printTokens(cmd, w)
	case "audit":
		return auditStores(ctx, cmd, w)
	case "verify-draw":
		return verifyDraw(cmd.VerifyDraw, w)
	case "preflight":
		return preflight.Run(ctx, cmd, version, stdout)
	case "rehearse":
		return rehearsal.Run(ctx, cmd, version, stdout)
	case "lab":
		return runLab(ctx, cmd, version, stdout, stderr)
	case "health":
		return askHealth(ctx, cmd.Settings.HTTPAddr)
	case "version":
		fmt.Fprintln(w, "flashsale", version)
		return nil
	}
	db, err := repository.Open(ctx, cmd.Settings.Database, cmd.Settings.DBMaxConns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if strings.HasPrefix(cmd.Name, "keys ") {
		return manageKeys(ctx, cmd, db, w)
	}
	return migrate(ctx, cmd.Name, db, w)
}

// Validate checks the settings and options that a command needs, and fills in those that follow from others.
func Validate(cmd *config.Command) error {
	switch cmd.Name {
	case "health", "version":
		return nil
	case "serve":
		return cmd.Settings.Validate()
	case "tokens":
		t := cmd.Tokens
		return cmp.Or(
			config.Refuse(t.Users < 1 || t.Users > 10_000_000, "--users: must be 1 to 10000000"),
			config.Refuse(!model.ValidUserID(t.Prefix+strconv.Itoa(t.Users)), "--prefix: ids must be 1 to 64 of A-Z a-z 0-9 . _ : -"),
			config.Refuse(t.TTL < time.Second, "--ttl: must be at least 1s"),
			cmd.Settings.ValidateSecret(),
		)
	case "verify-draw":
		return validateVerifyDraw(cmd.VerifyDraw)
	case "lab":
		return cmp.Or(validateLab(&cmd.Lab), cmd.Settings.ValidateStrategies())
	}
	if err := cmd.Settings.ValidateStores(); err != nil {
		return err
	}
	var err error
	switch cmd.Name {
	case "preflight":
		err = preflight.Validate(cmd.Preflight)
	case "rehearse":
		err = rehearsal.Validate(cmd.Rehearse, &cmd.Settings)
	}
	if err != nil {
		return err
	}
	if path, isFile := cmd.Settings.SQLitePath(); isFile && cmd.Name != "migrate up" {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("--database: there is no file %s; start an instance first, or run flashsale migrate up", path)
		}
	}
	return nil
}

// gcPercent lets the heap grow to about five times the live memory, which is small, between garbage collections. Near memoryLimit
// the collector runs more often. GOGC and GOMEMLIMIT in the environment replace these two.
const (
	gcPercent   = 400
	memoryLimit = 400 << 20
)

func serve(ctx context.Context, settings config.Settings, version string, w *bufio.Writer, stderr io.Writer) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	a, err := app.New(ctx, settings, app.Options{Version: version, Logs: stderr})
	if err != nil {
		return err
	}
	password, err := a.Furnish(ctx)
	if err != nil {
		return errors.Join(err, a.Close())
	}
	a.OpenLab(trial.NewDesk(a, settings, version))
	if err := trial.Tidy(&settings); err != nil {
		a.Log.Warn("stores of the lab were left behind", "error", err)
	}
	if limit, known := app.OpenFiles(); known {
		a.Log.Info("open files", "limit", limit)
	}
	fmt.Fprintf(w, "flashsale %s is at %s\n", version, a.URL())
	if ops := a.OpsURL(); ops != "" {
		fmt.Fprintf(w, "figures for operators: %s/metrics\n", ops)
	}
	if password != "" {
		fmt.Fprintf(w, "operator: admin, password %s (shown this once; --admin-password sets another)\n", password)
	}
	if live := a.Catalog.Live(); len(live) > 0 {
		fmt.Fprintf(w, "next: open %s/sales/%s, which shows how to buy\n", a.URL(), live[0].ID)
	}
	if err = w.Flush(); err == nil {
		err = a.Run(ctx)
	}
	return errors.Join(err, a.Close())
}

// printTokens prints signed tokens of made-up buyers, for load tools.
func printTokens(cmd config.Command, w io.Writer) error {
	secret, err := app.SecretOf(&cmd.Settings, false)
	if err != nil {
		return err
	}
	tokens := auth.NewTokens([]byte(secret), time.Now)
	fmt.Fprintln(w, "user_id,token")
	for i := range cmd.Tokens.Users {
		id := cmd.Tokens.Prefix + strconv.Itoa(i+1)
		token, _, err := tokens.Sign(model.Identity{UserID: id, Role: model.RoleBuyer}, cmd.Tokens.TTL)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s,%s\n", id, token)
	}
	return nil
}

func migrate(ctx context.Context, command string, db *repository.Store, w io.Writer) (err error) {
	switch command {
	case "migrate up":
		err = db.MigrateUp(ctx)
	case "migrate down":
		err = db.MigrateDown(ctx)
	}
	if err != nil {
		return err
	}
	status, err := db.MigrateStatus(ctx)
	if err != nil {
		return err
	}
	for _, m := range status {
		state := "pending"
		if m.Applied {
			state = "applied"
		}
		fmt.Fprintf(w, "%05d %s %s\n", m.Version, state, m.Name)
	}
	return nil
}

// auditStores checks the sale that --sale names, or all sales. It returns ErrViolation if a sale is wrong.
func auditStores(ctx context.Context, cmd config.Command, w io.Writer) (err error) {
	st, reached, err := app.OpenRunning(ctx, cmd.Settings, "audit")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	ids := []string{cmd.Audit.Sale}
	if cmd.Audit.Sale == "" {
		codes, _, err := st.Database.SaleCodes(ctx, time.Time{})
		if err != nil {
			return err
		}
		ids = slices.Sorted(maps.Keys(codes))
	}
	auditor, audited, wrong := st.Auditor(reached), 0, 0
	for _, id := range ids {
		audit, ok, err := auditor.AuditSettled(ctx, id)
		switch {
		case err != nil:
			return err
		case !ok && cmd.Audit.Sale != "":
			return fmt.Errorf("--sale: there is no sale %s", id)
		case !ok: // it is the id of a campaign that has no line, or of a sale that was erased meanwhile
			continue
		}
		audited++
		word := "ok"
		if !audit.OK() {
			word = "WRONG"
			wrong++
		}
		s := audit.Books.Stock
		fmt.Fprintf(w, "%s %s: quota %d = available %d + held %d + paid %d", word, id, s.Quota, s.Free(), s.Held, s.Paid)
		if audit.Gate.Exists {
			fmt.Fprintf(w, "; gate: left %d + inflight %d, drift %d", audit.Gate.Left, audit.Gate.Inflight, audit.Drift)
		}
		fmt.Fprintln(w)
		for _, v := range audit.Violations {
			fmt.Fprintln(w, "  "+v)
		}
	}
	fmt.Fprintf(w, "sales: %d, wrong: %d\n", audited, wrong)
	if wrong > 0 {
		return ErrViolation
	}
	return nil
}
