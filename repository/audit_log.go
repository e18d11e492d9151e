package repository

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// detailLength is the length of the column detail on MySQL, in characters.
const detailLength = 1000

// Log adds an entry to the audit log. It cuts "detail" to detailLength.
func (s *Store) Log(ctx context.Context, actor, action, subject, detail string) error {
	return wrap("log "+action, s.run(s.write.WithContext(ctx), s.logging(actor, action, subject, detail)))
}

func (s *Store) logging(actor, action, subject, detail string) statement {
	return do("INSERT INTO audit_log (at_ms, actor, action, subject, detail) VALUES ("+s.nowMillis()+", ?, ?, ?, ?)",
		actor, action, subject, model.Excerpt(detail, detailLength))
}

// Operations lists the entries of the audit log about a subject, the newest first. next is the cursor of the next page, and empty
// at the end. Operations returns model.ErrBadCursor if the cursor can't be read.
func (s *Store) Operations(ctx context.Context, subject, cursor string, limit int) (list []model.AuditEntry, next string, err error) {
	limit = max(1, limit)
	before := int64(math.MaxInt64)
	if cursor != "" {
		if before, err = strconv.ParseInt(cursor, 10, 64); err != nil {
			return nil, "", model.ErrBadCursor
		}
	}
	var id int64 // of the last row that was read
	list, err = scan(s.read.WithContext(ctx), "list operations", func(e *model.AuditEntry) []any {
		return []any{millis(&e.At), &e.Actor, &e.Action, &e.Detail, &id}
	}, "SELECT at_ms, actor, action, detail, id FROM audit_log WHERE subject = ? AND id < ? ORDER BY id DESC LIMIT ?", subject, before, limit+1)
	list, next = cut(list, limit, func(*model.AuditEntry) string { return strconv.FormatInt(id+1, 10) }) // the next page begins with the last row read
	return list, next, err
}

// Lease gives "holder" the named lease for the time "ttl" by the database's clock, or extends it. It returns false if another
// holder has it. A lease that ends more than "ttl" from now counts as expired, since the clock may have been set back.
func (s *Store) Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	db, now := s.write.WithContext(ctx), s.nowMillis()
	err := s.run(db, do(s.insertIgnore()+" INTO leases (name, holder, until_ms) VALUES (?, '', 0)", name),
		do("UPDATE leases SET holder = ?, until_ms = "+now+" + ? WHERE name = ? AND (holder = ? OR until_ms < "+now+" OR until_ms > "+now+" + ?)",
			holder, ttl.Milliseconds(), name, holder, ttl.Milliseconds()))
	if err != nil {
		return false, wrap("lease "+name, err)
	}
	// MySQL does not count a row that an UPDATE leaves as it was, so the holder is read back.
	has, err := cell[string](db, "lease "+name, "SELECT holder FROM leases WHERE name = ?", name)
	return has == holder, err
}

// OrderIDKey is the name under which DataKey keeps the key of model.OrderIDs.
const OrderIDKey = "order-ids"

// DataKey returns the key of 32 bytes that the database keeps under a name. It makes the key if there is none yet.
func (s *Store) DataKey(ctx context.Context, name string) ([]byte, error) {
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // documented to never fail
	err := s.write.WithContext(ctx).Exec("INSERT INTO data_keys (name, value) VALUES (?, ?)", name, hex.EncodeToString(fresh)).Error
	if err != nil && !errors.Is(err, gorm.ErrDuplicatedKey) {
		return nil, fmt.Errorf("make the key %s: %w", name, err)
	}
	return s.KeptKey(ctx, name)
}

// KeptKey returns the key that the database keeps under a name, or nil if there is none.
func (s *Store) KeptKey(ctx context.Context, name string) ([]byte, error) {
	text, ok, err := one(column[string](s.read.WithContext(ctx), "read the key "+name, "SELECT value FROM data_keys WHERE name = ?", name))
	if err != nil || !ok {
		return nil, err
	}
	return hex.DecodeString(text)
}
