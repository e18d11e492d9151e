package repository

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"flashsale/model"
)

// CreateAccount writes a built-in user; ok is false if the name is taken.
func (s *Store) CreateAccount(ctx context.Context, a model.Account) (ok bool, err error) {
	err = s.write.WithContext(ctx).Exec("INSERT INTO users (id, name, password_hash, role, created_at_ms) VALUES (?, ?, ?, ?, "+s.nowMillis()+")",
		a.ID, a.Name, a.PasswordHash, string(a.Role)).Error
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("create account: %w", err)
	}
	return true, nil
}

// SetPassword replaces a user's password hash.
func (s *Store) SetPassword(ctx context.Context, name, hash string) error {
	if err := s.write.WithContext(ctx).Exec("UPDATE users SET password_hash = ? WHERE name = ?", hash, name).Error; err != nil {
		return fmt.Errorf("set password: %w", err)
	}
	return nil
}

// Account reads a built-in user by name; ok is false if there is none.
func (s *Store) Account(ctx context.Context, name string) (account model.Account, ok bool, err error) {
	var rows []struct{ ID, Name, PasswordHash, Role string }
	err = s.read.WithContext(ctx).Raw("SELECT id, name, password_hash, role FROM users WHERE name = ?", name).Scan(&rows).Error
	if err != nil || len(rows) == 0 {
		return account, false, wrap("read account", err)
	}
	r := rows[0]
	return model.Account{ID: r.ID, Name: r.Name, PasswordHash: r.PasswordHash, Role: model.Role(r.Role)}, true, nil
}
