// Package migrations holds the schema as numbered SQL, once for MySQL and once for SQLite.
// A file that has been applied anywhere never changes.
package migrations

import "embed"

// FS has the folders mysql and sqlite, twins file by file.
//
//go:embed mysql/*.sql sqlite/*.sql
var FS embed.FS
