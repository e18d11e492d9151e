package kit

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/glebarez/go-sqlite" // the driver "sqlite"
	mysqldriver "github.com/go-sql-driver/mysql"

	"flashsale/internal/embedded"
)

// Stores are a database and a Redis, as one server of the engine uses them. The database is empty.
type Stores struct {
	Database string // the value of --database
	Redis    string // the value of --redis
	// KillRedis ends the Redis. RestartRedis starts it again, empty; it is nil for the Redis inside the process.
	KillRedis, RestartRedis func()
}

// EachStores runs a test on both pairs of stores that servers use: SQLite with the Redis inside the process, and MariaDB
// with redis-server. The package needs func TestMain(m *testing.M) { kit.Main(m) }.
func EachStores(t *testing.T, test func(t *testing.T, s Stores)) {
	t.Helper()
	t.Run("SQLite and embedded Redis", func(t *testing.T) { test(t, EmbeddedStores(t)) })
	t.Run("MariaDB and redis-server", func(t *testing.T) { test(t, ServerStores(t)) })
}

// EmbeddedStores returns a SQLite file and a Redis inside the process. Both end with the test.
func EmbeddedStores(t *testing.T) Stores {
	t.Helper()
	redis, err := embedded.StartRedis()
	must(t, "start the embedded Redis", err)
	t.Cleanup(redis.Close)
	return Stores{Database: SQLite(t), Redis: redis.URL(), KillRedis: redis.Close}
}

// ServerStores returns a database in the shared MariaDB and a redis-server. Both end with the test.
func ServerStores(t *testing.T) Stores {
	t.Helper()
	redis := Redis(t)
	return Stores{
		Database: SharedMariaDB(t).NewDatabase(t), Redis: redis.URL(),
		KillRedis: redis.Kill, RestartRedis: redis.Restart,
	}
}

// SQLite returns the address of a database file that does not exist yet.
func SQLite(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "test.db") }

// OpenSQL opens a database beside the engine, for what a test reads or changes behind its back. It is closed with the
// test.
func OpenSQL(t testing.TB, address string) *sql.DB {
	t.Helper()
	driver, source := "sqlite", strings.TrimPrefix(address, "sqlite:")+"?_pragma=busy_timeout(5000)"
	if rest, ok := strings.CutPrefix(address, "mysql://"); ok {
		cfg, err := mysqldriver.ParseDSN(strings.Replace(strings.Replace(rest, "@", "@tcp(", 1), "/", ")/", 1))
		must(t, "read the database's address", err)
		driver, source = "mysql", cfg.FormatDSN()
	}
	db, err := sql.Open(driver, source)
	must(t, "open the database", err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
