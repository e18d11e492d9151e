package repository

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"
	"gorm.io/driver/mysql"

	"flashsale/internal/address"
)

func openMySQL(ctx context.Context, text string, maxConns int, open func(driver.Connector) *sql.DB) (*Store, error) {
	unlimited, err := mysqlServers(text)
	if err != nil {
		return nil, err
	}
	limited := servers{unlimited.config.Clone(), unlimited.hosts}
	limited.config.ReadTimeout, limited.config.WriteTimeout = ioTimeout, ioTimeout
	settings, limits, galera, err := sessionSettings(ctx, limited)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	for _, of := range []servers{unlimited, limited} {
		maps.Copy(of.config.Params, settings)
	}
	maps.Copy(limited.config.Params, limits)
	// A connector is used because a DSN can't carry the driver's logger.
	connector, err := limited.connector()
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	pool := open(connector)
	db, err := overPool(ctx, mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true}), pool, maxConns)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	several, _ := connector.(*hosts)
	return &Store{write: db, read: db, writers: pool, readers: pool, mysql: &unlimited, open: open, hosts: several, galera: galera}, nil
}

// mysqlServers converts an address of MySQL to the driver's settings.
func mysqlServers(text string) (s servers, err error) {
	u, hosts, err := address.MySQL(text)
	if err != nil {
		return s, fmt.Errorf("database: %w", err)
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return s, errors.New("database: what follows '?' can't be read")
	}
	for name, values := range parameters {
		if !slices.Contains([]string{"socket", "tls", "tls-ca", "tls-cert", "tls-key"}, name) || len(values) != 1 || values[0] == "" {
			return s, fmt.Errorf("database: the parameter %q is unknown, empty or repeated; want socket, tls, tls-ca, tls-cert, tls-key", name)
		}
	}
	cfg := mysqldriver.NewConfig()
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	if cfg.Net = "tcp"; len(hosts) == 0 {
		cfg.Net, hosts = "unix", []string{parameters.Get("socket")}
	}
	if cfg.TLS, err = clientTLS(parameters); err != nil {
		return s, fmt.Errorf("database: %w", err)
	}
	if cfg.TLS != nil && cfg.Net == "unix" {
		return s, errors.New("database: a socket stays on this machine and has no tls")
	}
	cfg.AllowFallbackToPlaintext = parameters.Get("tls") == "preferred"
	cfg.DBName = strings.Trim(u.Path, "/")
	cfg.Collation = "utf8mb4_general_ci"
	cfg.InterpolateParams = true
	cfg.Timeout = dialTimeout
	cfg.MultiStatements = true            // see Store.calls
	cfg.RejectReadOnly = true             // drop a connection whose server refuses a write as read-only
	cfg.ParseTime = true                  // for goose's table; the engine's own times are integers
	cfg.Logger = &mysqldriver.NopLogger{} // errors are returned
	cfg.Params = maps.Clone(meaning)
	return servers{cfg, hosts}, nil
}

// clientTLS returns how connections are encrypted, or nil if they are not.
func clientTLS(parameters url.Values) (*tls.Config, error) {
	ca, cert, key := parameters.Get("tls-ca"), parameters.Get("tls-cert"), parameters.Get("tls-key")
	mode := parameters.Get("tls")
	if mode+ca+cert+key == "" {
		return nil, nil
	}
	mode = cmp.Or(mode, "true")
	switch unchecked := mode == "skip-verify" || mode == "preferred"; {
	case unchecked && ca != "":
		return nil, fmt.Errorf("tls=%s does not check the server's certificate, so there is no tls-ca", mode)
	case !unchecked && mode != "true":
		return nil, errors.New("tls: want true, skip-verify or preferred")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: mode != "true"} //nolint:gosec // the operator asks for it
	if ca != "" {
		text, err := os.ReadFile(ca) //nolint:gosec // the operator names the file
		if err != nil {
			return nil, fmt.Errorf("tls-ca: %w", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tls-ca: %s has no certificate in PEM", ca)
		}
	}
	if cert+key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("tls-cert and tls-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// meaning has variables of a session that change what a statement does. Connections do not leave them to the server's defaults.
var meaning = map[string]string{
	"autocommit":           "1",          // without it, a single statement waits for a commit that never comes
	"completion_type":      "'NO_CHAIN'", // by CHAIN, a transaction begins after each commit
	"sql_mode":             "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
	"sql_safe_updates":     "0",        // 1 refuses changes that name no key
	"sql_select_limit":     "DEFAULT",  // a number cuts results
	"sql_big_selects":      "1",        // 0 refuses reads that seem large
	"sql_auto_is_null":     "0",        // 1 lets IS NULL find the row that was inserted last
	"unique_checks":        "1",        // 0 may let two rows have the same unique key
	"time_zone":            "'+00:00'", // in local time, NOW() repeats an hour when summer time ends
	"character_set_client": "utf8mb4", "character_set_results": "utf8mb4", "collation_connection": "utf8mb4_general_ci",
}

// sessionSettings returns further variables of a session: settings has more of the kind in meaning, and limits bounds the time of
// statements and transactions. Their names differ between MariaDB and MySQL. MySQL too old to enforce CHECK constraints is an
// error. galera is true on a node of a Galera cluster.
func sessionSettings(ctx context.Context, s servers) (settings, limits map[string]string, galera bool, err error) {
	connector, err := s.connector()
	if err != nil {
		return nil, nil, false, err
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }()
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return nil, nil, false, err
	}
	var name, replicates string
	err = db.QueryRowContext(ctx, "SHOW GLOBAL VARIABLES LIKE 'wsrep_on'").Scan(&name, &replicates)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, nil, false, err
	}
	limits = map[string]string{"innodb_lock_wait_timeout": fmt.Sprint(lockWaitSeconds)}
	if strings.Contains(version, "MariaDB") {
		// enforcesChecks says why check_constraint_checks matters.
		settings = map[string]string{"check_constraint_checks": "1", "tx_isolation": "'READ-COMMITTED'", "tx_read_only": "0"}
		limits["max_statement_time"] = fmt.Sprint(statementSeconds)
		limits["idle_transaction_timeout"] = fmt.Sprint(idleSeconds)
	} else {
		if !enforcesChecks(version) {
			return nil, nil, false, fmt.Errorf("MySQL %s does not enforce CHECK constraints: want 8.0.16 or newer", version)
		}
		settings = map[string]string{"transaction_isolation": "'READ-COMMITTED'", "transaction_read_only": "0"}
		limits["max_execution_time"] = fmt.Sprint(statementSeconds * 1000)
	}
	if galera = replicates == "ON"; galera {
		// The node first waits for what other nodes have committed, so that an instance sees the commits of other instances.
		settings["wsrep_sync_wait"] = "7"
	}
	return settings, limits, galera, nil
}

// enforcesChecks reports whether MySQL of this version enforces CHECK constraints, which keep a sale within its quota.
func enforcesChecks(version string) bool {
	var have [3]int
	_, err := fmt.Sscanf(version, "%d.%d.%d", &have[0], &have[1], &have[2])
	return err == nil && slices.Compare(have[:], []int{8, 0, 16}) >= 0
}
