// Package migrations holds the schema as numbered SQL, once for MySQL and once for SQLite.
// A file that has been applied anywhere keeps its meaning for ever.
//
// MySQL commits each statement that makes, alters or drops a table at once, so a step that broke off is run again from its
// beginning. Then a statement that makes what is there already, or drops what is gone, is passed over: see
// repository/migrate.go. A statement that changes rows must change nothing when it is repeated.
package migrations

import "embed"

// FS has the folders mysql and sqlite, twins file by file.
//
//go:embed mysql/*.sql sqlite/*.sql
var FS embed.FS
