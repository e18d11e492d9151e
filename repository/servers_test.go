package repository

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// at returns the port of the server that a transaction uses.
func (d *testDB) at(t *testing.T) (port int) {
	t.Helper()
	check.NoError(t, d.write.WithContext(t.Context()).Raw("SELECT @@port").Scan(&port).Error)
	return port
}

// The store uses the first server that takes writes. When another one is promoted, no connection to the old primary is used
// any more, although the old primary takes writes again.
func TestServers(t *testing.T) {
	t.Parallel()
	first, second := kit.MariaDB(t, "--read-only"), kit.MariaDB(t)
	address := second.NewDatabase(t)
	u, err := url.Parse(address)
	check.NoError(t, err)
	name := u.User.Username()
	password, _ := u.User.Password()
	execute := func(s *kit.MariaDBServer, statement string) {
		t.Helper()
		_, err := s.Root(t).ExecContext(t.Context(), statement)
		check.NoError(t, err)
	}
	execute(first, "CREATE DATABASE "+name+"; CREATE USER "+name+"@'127.0.0.1' IDENTIFIED BY '"+password+"'; GRANT ALL ON "+name+".* TO "+name+"@'127.0.0.1'")
	down := kit.MariaDB(t)
	down.Kill()
	hosts := strings.Join([]string{down.Addr(), first.Addr(), second.Addr()}, ",")
	d := openStore(t, strings.Replace(address, second.Addr(), hosts, 1), suiteConns)
	allAt := func(want int) {
		t.Helper()
		check.Together(suiteConns, func(int) {
			var port int
			err := d.read.WithContext(t.Context()).Raw("SELECT @@port FROM (SELECT SLEEP(0.2)) AS pause").Scan(&port).Error
			check.Same(t, "port", []any{port, err}, []any{want, nil})
		})
	}
	used := make(chan string, 9)
	d.Follow(func(server string) { used <- server })
	allAt(second.Port())
	check.NoError(t, d.MigrateUp(t.Context()), d.Ping(t.Context()))
	facts, err := d.Server(t.Context(), time.Now)
	check.NoError(t, err)
	for i, want := range []ServerState{{Host: down.Addr()}, {Host: first.Addr(), ReadOnly: true}, {Host: second.Addr()}} {
		got := facts.Servers[i]
		check.Same(t, "usable", got.Err == nil, i == 2)
		got.Err = nil
		check.Same(t, "server", got, want)
	}
	// Each server refuses what comes after it became read-only, also on connections that are open.
	pool, err := d.write.DB()
	check.NoError(t, err)
	inUse := check.Must(pool.Conn(t.Context()))
	execute(second, "SET GLOBAL read_only = ON")
	execute(first, "SET GLOBAL read_only = OFF")
	check.NoError(t, d.write.WithContext(t.Context()).Exec("CREATE TABLE promoted (n INT)").Error)
	execute(second, "SET GLOBAL read_only = OFF")
	check.NoError(t, inUse.Close()) // back to the pool
	allAt(first.Port())
	first.Kill()
	err = d.write.WithContext(t.Context()).Exec("CREATE TABLE promoted (n INT)").Error
	for range suiteConns { // each connection to the dead server fails once
		if err != nil {
			err = d.write.WithContext(t.Context()).Exec("CREATE TABLE IF NOT EXISTS promoted (n INT)").Error
		}
	}
	check.NoError(t, err)
	allAt(second.Port())
	for _, want := range []string{second.Addr(), first.Addr(), second.Addr()} {
		check.Same(t, "in use", <-used, want)
	}
	second.Kill()
	_, err = Open(t.Context(), strings.Replace(address, second.Addr(), hosts, 1), 4)
	if err == nil || strings.Contains(err.Error(), password) || strings.Count(err.Error(), "refused") != 3 {
		t.Errorf("no server: %v", err)
	}
}

// Two instances at different nodes of a cluster see at once what the other has confirmed, and sell exactly the quota while
// their transactions collide. When a node dies, its instance goes on at another one.
func TestGalera(t *testing.T) {
	t.Parallel()
	cluster := kit.Galera(t)
	address := cluster.NewDatabase(t)
	nodes := cluster.Nodes
	inOrder := strings.Join([]string{nodes[0].Addr(), nodes[1].Addr(), nodes[2].Addr()}, ",")
	other := strings.Join([]string{nodes[1].Addr(), nodes[2].Addr(), nodes[0].Addr()}, ",")
	a := openDB(t, address)
	b := openDB(t, strings.Replace(address, inOrder, other, 1))
	check.Same(t, "nodes", []int{a.at(t), b.at(t)}, []int{nodes[0].Port(), nodes[1].Port()})
	facts, err := a.Server(t.Context(), time.Now)
	check.NoError(t, err)
	check.Same(t, "nodes", []int{facts.Nodes, len(facts.Servers)}, []int{3, 3})
	const quota, buyers = 1000, 300
	sale := a.newSale(t, quota)
	var sold atomic.Int64
	check.Together(8, func(worker int) {
		d := []*testDB{a, b}[worker%2]
		for i := range buyers {
			tried := attempt(sale.ID, fmt.Sprint("user-", worker, "-", i), "k", 1)
			outcomes, err := settling.try(t.Context(), d, tried)
			for errors.Is(err, model.ErrUnavailable) { // it has collided too often
				outcomes, err = settling.try(t.Context(), d, tried)
			}
			if err != nil {
				t.Errorf("settle: %v", err)
			} else if outcomes[0].Verdict == model.Accepted {
				sold.Add(1)
				if _, ok, err := []*testDB{b, a}[worker%2].Order(t.Context(), tried.ID); err != nil || !ok {
					t.Errorf("the other node lacks an order that was confirmed: %v", err)
				}
			}
		}
	})
	check.Same(t, "sold", sold.Load(), int64(quota))
	nodes[0].Kill()
	for range suiteConns + 1 {
		if err := a.Ping(t.Context()); err == nil {
			break
		}
	}
	if at := a.at(t); at != nodes[1].Port() && at != nodes[2].Port() {
		t.Errorf("at port %d, which no live node has", at)
	}
	wantVerdicts(t, a.settle(t, attempt(a.newSale(t, 1).ID, "ann", "k", 1)), model.Accepted)
}
