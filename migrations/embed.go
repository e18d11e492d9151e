// Package migrations holds the schema as numbered SQL, once for MySQL and once for SQLite. A released file keeps its meaning.
//
// MySQL commits at once each statement that makes, alters or drops a table. A step that broke off is run again from the start,
// and repository/migrate.go passes over what was done. So a statement that changes rows must change nothing when it is repeated,
// unless its step only changes rows: such a step is one transaction.
package migrations

import "embed"

// FS has the folders mysql and sqlite. Each file in one of them has a twin with the same name in the other.
//
//go:embed mysql/*.sql sqlite/*.sql
var FS embed.FS
