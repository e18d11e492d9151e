package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"flashsale/model"
)

// CreateAccount stores a built-in user; ok is false if the name or the id is taken.
func (s *Store) CreateAccount(ctx context.Context, a model.Account) (ok bool, err error) {
	return s.createAccount(s.write.WithContext(ctx), a)
}

func (s *Store) createAccount(db *gorm.DB, a model.Account) (ok bool, err error) {
	err = db.Exec("INSERT INTO users (id, name, password_hash, role, created_at_ms) VALUES (?, ?, ?, ?, "+s.nowMillis()+")",
		a.ID, a.Name, a.PasswordHash, string(a.Role)).Error
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return false, nil
	}
	return err == nil, wrap("create account", err)
}

// SetPassword replaces the password hash of the user with this name. It does nothing if there is no such user.
func (s *Store) SetPassword(ctx context.Context, name, hash string) error {
	return s.update(ctx, "set password", "UPDATE users SET password_hash = ? WHERE name = ?", hash, name)
}

func accounts(db *gorm.DB, where string, args ...any) ([]model.Account, error) {
	return scan(db, "read accounts", func(a *model.Account) []any {
		return []any{&a.ID, &a.Name, &a.PasswordHash, &a.Role, millis(&a.CreatedAt), millis(&a.UsedAt)}
	}, "SELECT id, name, password_hash, role, created_at_ms, used_at_ms FROM users WHERE "+where, args...)
}

// Account reads a built-in user by name; ok is false if there is none.
func (s *Store) Account(ctx context.Context, name string) (account model.Account, ok bool, err error) {
	return one(accounts(s.read.WithContext(ctx), "name = ?", name))
}

// Staff lists the members of the staff and the keys, sorted by name.
func (s *Store) Staff(ctx context.Context) ([]model.Account, error) {
	return accounts(s.read.WithContext(ctx), "role IN ? ORDER BY name", staffRoles)
}

var staffRoles = slices.DeleteFunc(model.Roles(), func(r model.Role) bool {
	return r == model.RoleBuyer || r == model.RoleCrowd
})

// CreateStaff stores a member of the staff or a key; ok is false if the name or the id is taken.
func (s *Store) CreateStaff(ctx context.Context, a model.Account, actor string) (ok bool, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		if ok, err = s.createAccount(tx, a); err != nil || !ok {
			return err
		}
		return s.run(tx, s.logging(actor, "create", model.StaffSubject, fmt.Sprintf("%s, %s", a.ID, a.Role)))
	})
	return ok, err
}

// ChangeStaff sets the role and the hash of a member of the staff or a key, and returns the changed account. An empty role or
// hash stays as it is. ok is false if nobody of the staff, and no key, has this name.
func (s *Store) ChangeStaff(ctx context.Context, name string, role model.Role, hash, actor string) (account model.Account, ok bool, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		if account, ok, err = s.lockStaff(tx, name); err != nil || !ok {
			return err
		}
		what := "a new secret"
		if role != "" {
			what = fmt.Sprintf("%s -> %s", account.Role, role)
		}
		account.Role, account.PasswordHash = cmp.Or(role, account.Role), cmp.Or(hash, account.PasswordHash)
		return s.run(tx, do("UPDATE users SET role = ?, password_hash = ? WHERE id = ?", string(account.Role), account.PasswordHash, account.ID),
			s.logging(actor, "change", model.StaffSubject, account.ID+": "+what))
	})
	return account, ok, wrap("change "+name, err)
}

// RemoveStaff removes a member of the staff or a key, and returns the account. ok is false if there is none with this name.
func (s *Store) RemoveStaff(ctx context.Context, name, actor string) (account model.Account, ok bool, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		if account, ok, err = s.lockStaff(tx, name); err != nil || !ok {
			return err
		}
		return s.run(tx, do("DELETE FROM users WHERE id = ?", account.ID), s.logging(actor, "remove", model.StaffSubject, account.ID))
	})
	return account, ok, wrap("remove "+name, err)
}

func (s *Store) lockStaff(tx *gorm.DB, name string) (account model.Account, ok bool, err error) {
	return one(accounts(tx, "name = ? AND role IN ?"+s.forUpdate(), name, staffRoles))
}

// Used records, by the database's clock, that the key with this id was used now.
func (s *Store) Used(ctx context.Context, id string) error {
	return s.update(ctx, "record the use of a key", "UPDATE users SET used_at_ms = "+s.nowMillis()+" WHERE id = ?", id)
}
