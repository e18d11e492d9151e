package repository

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	mysqldriver "github.com/go-sql-driver/mysql"
)

// servers are the MySQL servers of an address: one, the nodes of a cluster, or a primary and its replicas.
type servers struct {
	config *mysqldriver.Config // of connections to any of them
	hosts  []string            // as host:port, or one path of a socket
}

// connector returns a connector to the servers: a hosts, if there are several.
func (s servers) connector() (driver.Connector, error) {
	all := make([]driver.Connector, len(s.hosts))
	for i, host := range s.hosts {
		config := s.config.Clone()
		config.Addr = host
		var err error
		if all[i], err = mysqldriver.NewConnector(config); err != nil {
			return nil, err
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return &hosts{names: s.hosts, connectors: all}, nil
}

// hosts connects to one server of several, which must take writes. If a connection to this server fails, hosts tries the next
// ones. Connections to a server that is no longer in use, which may be an old primary, are closed, see ResetSession.
type hosts struct {
	names      []string
	connectors []driver.Connector
	chosen     atomic.Int64 // index of the server in use
	follow     atomic.Pointer[func(server string)]
}

// look connects once to each server, and returns what that has shown.
func (h *hosts) look(ctx context.Context) (list []ServerState) {
	for at, host := range h.names {
		conn, err := h.connect(ctx, at)
		if err == nil {
			err = conn.Close()
		}
		list = append(list, ServerState{Host: host, Err: err, ReadOnly: errors.Is(err, errReadOnly)})
	}
	return list
}

// Connect is part of driver.Connector.
func (h *hosts) Connect(ctx context.Context) (driver.Conn, error) {
	var failed error
	first := int(h.chosen.Load())
	for i := range h.connectors {
		at := (first + i) % len(h.connectors)
		conn, err := h.connect(ctx, at)
		if err == nil {
			if h.chosen.Swap(int64(at)) != int64(at) {
				h.tell()
			}
			return conn, nil
		}
		failed = errors.Join(failed, fmt.Errorf("%s: %w", h.names[at], err))
	}
	return nil, failed
}

func (h *hosts) tell() {
	if follow := h.follow.Load(); follow != nil {
		(*follow)(h.names[h.chosen.Load()])
	}
}

// Follow calls a function with the server in use, as host:port, now and after each change. It does nothing if the address does
// not name several servers.
func (s *Store) Follow(follow func(server string)) {
	if s.hosts != nil {
		s.hosts.follow.Store(&follow)
		s.hosts.tell()
	}
}

// Driver is part of driver.Connector.
func (h *hosts) Driver() driver.Driver { return h.connectors[0].Driver() }

// connect connects to the server with the index "at". It returns an error, such as errReadOnly, if the server takes no writes.
func (h *hosts) connect(ctx context.Context, at int) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout) // a server that hangs may still accept connections
	defer cancel()
	made, err := h.connectors[at].Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := made.(conn)
	if err := takesWrites(ctx, c); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return hostConn{c, h, int64(at)}, nil
}

// conn lists the interfaces by which database/sql calls a connection of the driver.
type conn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// hostConn is a connection to one of several servers.
type hostConn struct {
	conn
	hosts *hosts
	at    int64
}

// ResetSession, which the pool calls before each use but the first, makes the pool close a connection to a server not in use.
func (c hostConn) ResetSession(ctx context.Context) error {
	if c.hosts.chosen.Load() != c.at {
		return driver.ErrBadConn
	}
	return c.conn.ResetSession(ctx)
}

// BeginTx is part of driver.ConnBeginTx.
func (c hostConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.conn.BeginTx(ctx, opts)
	return tx, outsideCluster(err)
}

// ExecContext is part of driver.ExecerContext.
func (c hostConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	res, err := c.conn.ExecContext(ctx, query, args)
	return res, outsideCluster(err)
}

// QueryContext is part of driver.QueryerContext.
func (c hostConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.conn.QueryContext(ctx, query, args)
	return rows, outsideCluster(err)
}

// outsideCluster replaces the error of a Galera node that has left the primary component of its cluster, and has not executed the
// statement. The new error makes the pool close the connection.
func outsideCluster(err error) error {
	if mysql, _ := codes(err); mysql == 1047 { // ER_UNKNOWN_COM_ERROR
		return driver.ErrBadConn
	}
	return err
}

// readOnly reads the two variables that say whether a server takes no writes; MySQL's super_read_only implies read_only. It reads
// them as text, since in some versions of MariaDB they have more than two values.
const readOnly = "SELECT CONCAT(@@global.read_only, ' ', @@global.innodb_read_only)"

// writable are the values of readOnly on a server that takes writes.
var writable = []string{"0 0", "0 OFF", "OFF 0", "OFF OFF"}

// takesWrites returns an error if a server takes no writes, such as a read-only replica.
func takesWrites(ctx context.Context, c driver.QueryerContext) error {
	rows, err := c.QueryContext(ctx, readOnly, nil)
	if err != nil {
		return err
	}
	is := make([]driver.Value, 1)
	if err := errors.Join(rows.Next(is), rows.Close()); err != nil {
		return err
	}
	if text, ok := is[0].([]byte); !ok || !slices.Contains(writable, string(text)) {
		return errReadOnly
	}
	return nil
}
