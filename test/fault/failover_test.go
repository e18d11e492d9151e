package fault

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// failoverRows are planned failovers of a server. Their numbers are those of docs/holes.md.
var failoverRows = []row{
	{51, "the database moves: read-only under open connections", "202 or 503; /readyz tells; sales go on at the new primary", plannedFailover},
}

const (
	// toldReadOnly is how soon /readyz must report that the database takes no writes.
	toldReadOnly = 2 * time.Second
	// goesOn is how soon orders must be confirmed once a primary takes writes.
	goesOn = 5 * time.Second
)

// plannedFailover makes the primary read-only, copies its data to a second server and moves the address there. Open
// connections still lead to the first server, as behind a virtual IP address.
func plannedFailover(d *drill) {
	first, second := kit.MariaDB(d), kit.MariaDB(d)
	s := shop.On(d, first.NewDatabase(d), kit.Redis(d))
	m := d.mover(first.Addr())
	behind := strings.Replace(s.Database, first.Addr(), m.addr(), 1)
	gated, alone := d.gatedAndAlone(s, "--database", behind)
	quota := size(900, 12_000)
	sale := s.Sale(gated.URL, quota)
	load := d.rushAs(s, sale, manner{every: 4 * time.Millisecond, to: func(n int) string { return []string{gated.URL, alone.URL}[n%2] }})
	load.more(200, time.Minute)

	d.execute(first.Root(d), "SET GLOBAL read_only = ON")
	readOnly := time.Now()
	for _, i := range []*shop.Instance{gated, alone} {
		d.until(toldReadOnly, "/readyz tells", func() (bool, error) {
			status, _, err := s.Call(http.MethodGet, i.URL+"/readyz", "", nil)
			return status == http.StatusServiceUnavailable, err
		})
	}
	told := time.Since(readOnly)
	u := d.copyTo(second, first, s.Database)
	m.target.Store(&u.Host)
	s.Database = u.String()
	moved := time.Now()
	var confirmed [2]time.Duration
	for at, i := range []*shop.Instance{gated, alone} {
		d.until(goesOn, "orders are confirmed again", func() (bool, error) {
			for _, a := range within(load.soFar(), moved, time.Now()) {
				if a.Confirmed() && a.URL == i.URL {
					confirmed[at] = a.Answered.Sub(moved)
					return true, nil
				}
			}
			return false, nil
		})
	}
	load.more(200, time.Minute)
	attempts := load.stop()
	d.told(attempts, "201", "202", "409 sold_out", "503 unavailable")
	d.result.Happened = fmt.Sprintf("/readyz told after %s; once there was a primary, the first orders after %s and, without Redis, %s; %s",
		told.Round(time.Millisecond), confirmed[0].Round(time.Millisecond), confirmed[1].Round(time.Millisecond), d.tally(attempts))
	alone.Stop()
	d.recovered(s, sale, int64(quota), attempts, gated.URL)
}

// copyTo copies a database, with its account, to another server and returns its URL there.
func (d *drill) copyTo(to, from *kit.MariaDBServer, database string) *url.URL {
	d.Helper()
	u, err := url.Parse(database)
	if err != nil {
		d.Fatal(err)
	}
	name, account := strings.Trim(u.Path, "/"), u.User.Username()+"@'127.0.0.1'"
	password, _ := u.User.Password()
	d.execute(to.Root(d), "CREATE DATABASE "+name+" CHARACTER SET utf8mb4",
		"CREATE USER "+account+" IDENTIFIED BY '"+password+"'", "GRANT ALL ON "+name+".* TO "+account)
	run := func(input io.Reader, program string, server *kit.MariaDBServer, args ...string) []byte {
		host, port, err := net.SplitHostPort(server.Addr())
		if err != nil {
			d.Fatal(err)
		}
		cmd := exec.CommandContext(d.Context(), program, append([]string{"--no-defaults", "-h" + host, "-P" + port, "-uroot"}, args...)...)
		var complaints bytes.Buffer
		cmd.Stdin, cmd.Stderr = input, &complaints
		output, err := cmd.Output()
		if err != nil {
			d.Fatalf("%s: %v: %s", program, err, complaints.String())
		}
		return output
	}
	dump := run(nil, "mariadb-dump", from, "--single-transaction", name)
	run(bytes.NewReader(dump), "mariadb", to, name)
	u.Host = to.Addr()
	return u
}

// mover is an address whose target server can be changed. Open connections keep their target.
type mover struct {
	target   atomic.Pointer[string]
	listener net.Listener
}

func (m *mover) addr() string { return m.listener.Addr().String() }

func (d *drill) mover(target string) *mover {
	d.Helper()
	listener, err := new(net.ListenConfig).Listen(d.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		d.Fatal(err)
	}
	m := &mover{listener: listener}
	m.target.Store(&target)
	var links sync.WaitGroup
	links.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return // the row is over
			}
			links.Go(func() { m.link(d.Context(), near) })
		}
	})
	d.Cleanup(func() {
		_ = listener.Close()
		links.Wait()
	})
	return m
}

// link copies bytes in both directions until one end closes.
func (m *mover) link(ctx context.Context, near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", *m.target.Load())
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	var replies sync.WaitGroup
	replies.Go(func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	})
	_, _ = io.Copy(far, near)
	_ = far.Close()
	replies.Wait()
}
