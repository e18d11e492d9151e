package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/service/auth"
)

const commandActor = "command" // in the audit log

// manageKeys makes, lists or revokes keys. It prints the secret of a new key.
func manageKeys(ctx context.Context, cmd config.Command, db *repository.Store, w io.Writer) error {
	if err := db.CheckSchema(ctx); err != nil {
		return err
	}
	staff := &service.Staff{Store: db, Passwords: auth.NewPasswords(), Now: time.Now}
	list, err := db.Staff(ctx)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(a model.Account) bool { return !a.IsKey() })
	switch cmd.Name {
	case "keys create":
		_, secret, verdict, invalid, err := staff.Create(ctx, cmd.Keys.Create.Name, true, model.Role(cmd.Keys.Create.Role), commandActor)
		switch {
		case err != nil:
			return err
		case invalid != nil:
			return fmt.Errorf("--%s: must be %d to %d of A-Z a-z 0-9 . _ -", invalid.Field, invalid.Min, invalid.Max)
		case verdict != model.Accepted:
			return fmt.Errorf("--name: another account or key is called %s", cmd.Keys.Create.Name)
		}
		fmt.Fprintln(w, secret)
	case "keys revoke":
		if !slices.ContainsFunc(list, func(a model.Account) bool { return a.Name == cmd.Keys.Revoke.Name }) {
			return fmt.Errorf("--name: there is no key %s", cmd.Keys.Revoke.Name)
		}
		if _, _, err := staff.Remove(ctx, cmd.Keys.Revoke.Name, commandActor); err != nil {
			return err
		}
		fmt.Fprintf(w, "revoked %s\n", cmd.Keys.Revoke.Name)
	default:
		for _, a := range list {
			used := "never"
			if !a.UsedAt.IsZero() {
				used = a.UsedAt.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(w, "%s %s, created %s, last used %s\n", a.Name, a.Role, a.CreatedAt.UTC().Format(time.RFC3339), used)
		}
	}
	return nil
}
