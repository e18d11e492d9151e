// Package migrations holds the schema as numbered SQL, once for MySQL and once for SQLite.
// A file that has been applied anywhere keeps its meaning for ever.
//
// MySQL commits each statement about a table at once. So a step that broke off is begun again, and what is there already,
// or already gone, is passed over: see repository/migrate.go. For that, each statement stands alone, and one that changes
// rows changes nothing when it is repeated.
package migrations

import "embed"

// FS has the folders mysql and sqlite, twins file by file.
//
//go:embed mysql/*.sql sqlite/*.sql
var FS embed.FS
