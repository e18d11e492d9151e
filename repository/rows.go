package repository

import (
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// scan runs a query and scans each row into the fields that columns returns. GORM's own scan takes several times as long.
func scan[T any](db *gorm.DB, what string, columns func(row *T) []any, query string, args ...any) ([]T, error) {
	rows, err := db.Raw(query, args...).Rows()
	if err != nil {
		return nil, wrap(what, err)
	}
	defer func() { _ = rows.Close() }()
	var row T
	list, into := []T{}, columns(&row)
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, wrap(what, err)
		}
		list = append(list, row)
	}
	return list, wrap(what, outages{db.Dialector}.Translate(rows.Err()))
}

// exec executes a statement, which may have lists as arguments. It returns the database's count of affected rows.
func exec(db *gorm.DB, what, query string, args ...any) (changed int64, err error) {
	res := db.Exec(query, args...)
	return res.RowsAffected, wrap(what, res.Error)
}

// update executes a statement that is a transaction by itself, and may change any number of rows.
func (s *Store) update(ctx context.Context, what, query string, args ...any) error {
	return wrap(what, s.write.WithContext(ctx).Exec(query, args...).Error)
}

// one returns the first of the rows that a query has found; ok is false if there is none.
func one[T any](list []T, err error) (row T, ok bool, _ error) {
	if err != nil || len(list) == 0 {
		return row, false, err
	}
	return list[0], true, nil
}

// column returns the values of a query of one column.
func column[T any](db *gorm.DB, what, query string, args ...any) ([]T, error) {
	return scan(db, what, func(value *T) []any { return []any{value} }, query, args...)
}

// cell returns the first value of a query of one column, or the zero value if there is no row.
func cell[T any](db *gorm.DB, what, query string, args ...any) (T, error) {
	value, _, err := one(column[T](db, what, query, args...))
	return value, err
}

func byKey[K comparable, T any](list []T, key func(T) K) map[K]T {
	rows := make(map[K]T, len(list))
	for _, row := range list {
		rows[key(row)] = row
	}
	return rows
}

func each[T, U any](list []T, of func(T) U) []U {
	made := make([]U, len(list))
	for i, part := range list {
		made[i] = of(part)
	}
	return made
}

// cut ends a list at "limit" rows, and returns the cursor of the next page, or an empty cursor if the list was not longer.
func cut[T any](list []T, limit int, cursor func(last *T) string) (_ []T, next string) {
	if len(list) <= limit {
		return list, ""
	}
	return list[:limit], cursor(&list[limit-1])
}

// cursorOf returns the cursor of the page behind a row with this time and id.
func cursorOf(atMillis int64, id string) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%s", atMillis, id))
}

// parseCursor returns what cursorOf was given, or what comes before all rows if the cursor is empty. The error is model.ErrBadCursor.
func parseCursor(cursor string) (atMillis int64, id string, err error) {
	if cursor == "" {
		return math.MaxInt64, "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return 0, "", model.ErrBadCursor
	}
	at, id, ok := strings.Cut(string(raw), ".")
	atMillis, err = strconv.ParseInt(at, 10, 64)
	if err != nil || !ok || !model.ValidID(id, model.IDLength) {
		return 0, "", model.ErrBadCursor
	}
	return atMillis, id, nil
}

// pageRows is the most rows of one page of the function pages.
const pageRows = 1000

// pages reads rows in the order of their keys, in pages of pageRows. The first page begins behind the key "first".
func pages[K, T any](first K, read func(after K) ([]T, error), key func(T) K) iter.Seq2[[]T, error] {
	return func(yield func([]T, error) bool) {
		for after, more := first, true; more; {
			page, err := read(after)
			if err == nil && len(page) == 0 || !yield(page, err) || err != nil {
				return
			}
			after, more = key(page[len(page)-1]), len(page) == pageRows
		}
	}
}

// chain yields the pages of the parts, one part after the other, up to the first error.
func chain[T any](parts ...iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, part := range parts {
			for page, err := range part {
				if !yield(page, err) || err != nil {
					return
				}
			}
		}
	}
}

// timeOf scans the milliseconds since 1970 of a column into a time. 0 and NULL are the zero time.
type timeOf struct{ to *time.Time }

func millis(to *time.Time) timeOf { return timeOf{to} }

// Scan is part of sql.Scanner.
func (m timeOf) Scan(value any) error {
	var ms sql.NullInt64
	err := ms.Scan(value)
	if *m.to = (time.Time{}); ms.Int64 != 0 {
		*m.to = fromMillis(ms.Int64)
	}
	return err
}

// orZero scans a column that may be NULL, and makes NULL the zero value.
type orZero[T any] struct{ to *T }

// Scan is part of sql.Scanner.
func (o orZero[T]) Scan(value any) error {
	var v sql.Null[T]
	err := v.Scan(value)
	*o.to = v.V
	return err
}

func optional[T any](to *T) orZero[T] { return orZero[T]{to} }

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// toMillis returns milliseconds since 1970, and 0 for the zero time.
func toMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
