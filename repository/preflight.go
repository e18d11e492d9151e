package repository

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"flashsale/migrations"
	"flashsale/model"
)

// Server is what Store.Server finds out about the database.
type Server struct {
	Version     string            // with the server's name, as Store.Version returns it
	RoundTrip   time.Duration     // of the fastest of lookTrips queries
	Clock       time.Time         // the database's, at the time At
	At          time.Time         // by the caller's clock, in the middle of the query for Clock
	Applied     int64             // the newest applied step of the schema; 0: none
	Newest      int64             // the newest step of the schema that this binary has
	Connections int               // open connections of all clients; 0 on SQLite
	Encrypted   bool              // whether the engine's connection is encrypted
	Variables   map[string]string // of an ordinary session of the engine, by name; nil on SQLite
	Servers     []ServerState     // of an address that names several, in its order
	Nodes       int               // nodes of the Galera cluster, as this server sees them; 0: the server is in none
}

// ServerState is what a connection to one of several servers has shown.
type ServerState struct {
	Host     string // host:port
	Err      error  // why the engine would not use the server; nil: it would
	ReadOnly bool   // Err says that the server takes no writes
}

// lookTrips is the number of measured round trips: a busy machine seldom delays them all.
const lookTrips = 5

// variables are the server variables in Server.Variables. Some of them exist only on MySQL, others only on MariaDB.
var variables = []string{
	"innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog", "innodb_doublewrite", "innodb_buffer_pool_size",
	"max_connections", "max_user_connections", "max_allowed_packet", "read_only", "innodb_read_only",
	"sql_mode", "time_zone", "tx_isolation", "transaction_isolation", "idle_transaction_timeout",
	"rpl_semi_sync_master_enabled", "rpl_semi_sync_master_timeout", "rpl_semi_sync_source_enabled", "rpl_semi_sync_source_timeout",
}

// Version names the database server and its version.
func (s *Store) Version(ctx context.Context) (version string, err error) {
	version, err = cell[string](s.read.WithContext(ctx), "ask for the database's version", s.dialect("SELECT VERSION()", "SELECT sqlite_version()"))
	if err != nil {
		return "", err
	}
	if number, _, ok := strings.Cut(version, "-MariaDB"); ok {
		return "MariaDB " + number, nil
	}
	return s.dialect("MySQL ", "SQLite ") + version, nil
}

// Server reads the facts about the database and changes nothing. now is the caller's clock.
func (s *Store) Server(ctx context.Context, now func() time.Time) (facts Server, err error) {
	if facts.Version, err = s.Version(ctx); err != nil {
		return facts, err
	}
	trips := make([]time.Duration, lookTrips)
	for i := range trips {
		asked := now()
		if facts.Clock, err = s.Now(ctx); err != nil {
			return facts, err
		}
		trips[i] = now().Sub(asked)
		facts.At = asked.Add(trips[i] / 2)
	}
	facts.RoundTrip = slices.Min(trips)
	if facts.Applied, facts.Newest, err = s.schema(ctx); err != nil || s.sqlite {
		return facts, err
	}
	if facts.Variables, err = s.shown(ctx, "SHOW VARIABLES", variables...); err != nil {
		return facts, err
	}
	status, err := s.shown(ctx, "SHOW STATUS", "Ssl_cipher", "Threads_connected", "wsrep_cluster_size")
	if err != nil {
		return facts, err
	}
	facts.Encrypted = status["ssl_cipher"] != ""
	if facts.Connections, err = strconv.Atoi(status["threads_connected"]); err == nil && s.galera {
		facts.Nodes, err = strconv.Atoi(status["wsrep_cluster_size"])
	}
	if s.hosts != nil {
		facts.Servers = s.hosts.look(ctx)
	}
	return facts, wrap("read the server's status", err)
}

// shown returns some of the variables that a SHOW statement lists, by their names in lower case.
func (s *Store) shown(ctx context.Context, show string, names ...string) (map[string]string, error) {
	type variable struct{ name, value string }
	list, err := scan(s.read.WithContext(ctx), show, func(v *variable) []any { return []any{&v.name, &v.value} },
		show+" WHERE Variable_name IN ?", names)
	values := make(map[string]string, len(list))
	for _, v := range list {
		values[strings.ToLower(v.name)] = v.value
	}
	return values, err
}

// ShadowSales lists the ids of the shadow sales, including closed ones.
func (s *Store) ShadowSales(ctx context.Context) (ids []string, err error) {
	return column[string](s.read.WithContext(ctx), "list the shadow sales", "SELECT id FROM sales WHERE id LIKE ?", model.ShadowPrefix+"%")
}

// schema returns the newest applied step, and the newest of this binary. It does not ask goose, which would make its table.
func (s *Store) schema(ctx context.Context) (applied, newest int64, err error) {
	files, err := fs.Glob(migrations.FS, s.dialect("mysql", "sqlite")+"/*.sql")
	if err != nil || len(files) == 0 {
		return 0, 0, fmt.Errorf("list the migrations: %d: %w", len(files), err)
	}
	if newest, err = goose.NumericComponent(files[len(files)-1]); err != nil { // the names are sorted
		return 0, 0, fmt.Errorf("list the migrations: %w", err)
	}
	there, err := s.tables(ctx)
	if err != nil || !slices.Contains(there, goose.DefaultTablename) {
		return 0, newest, err
	}
	applied, err = cell[int64](s.read.WithContext(ctx), "read the schema's version", "SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version")
	return applied, newest, err
}
