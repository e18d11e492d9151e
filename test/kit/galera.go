package kit

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// GaleraCluster is a MariaDB Galera cluster, all of whose nodes take writes. It suspects a silent node after two seconds and
// excludes it after four.
type GaleraCluster struct{ Nodes []*MariaDBServer }

// Galera starts a cluster of three nodes for this test, which takes some seconds, and ends it with the test.
func Galera(t testing.TB) *GaleraCluster {
	t.Helper()
	for program, debianPackage := range map[string]string{"rsync": "rsync", "lsof": "lsof", "socat": "socat", "ss": "iproute2"} {
		find(t, program, debianPackage) // the script that copies the data to a new node runs them
	}
	const size = 3
	replication := make([]string, size)
	for i := range replication {
		port, err := FreePort()
		must(t, "choose a port", err)
		replication[i] = loopback(port)
	}
	c := &GaleraCluster{}
	for i, own := range replication {
		var ports [2]int
		for p := range ports {
			var err error
			ports[p], err = FreePort()
			must(t, "choose a port", err)
		}
		provider := strings.Join([]string{
			"gmcast.listen_addr=tcp://" + own, "ist.recv_addr=" + loopback(ports[0]), "gcache.size=32M", "evs.keepalive_period=PT0.5S",
			"evs.inactive_check_period=PT0.5S", "evs.suspect_timeout=PT2S", "evs.install_timeout=PT4S", "evs.inactive_timeout=PT4S",
		}, ";")
		node := newMariaDB(t, "", "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON",
			"--wsrep-provider=/usr/lib/galera/libgalera_smm.so", "--wsrep-cluster-name=test", "--wsrep-node-address="+own,
			"--wsrep-sst-method=rsync", "--wsrep-sst-receive-address="+loopback(ports[1]), "--wsrep-provider-options="+provider,
			"--wsrep-slave-threads=2", "--wsrep-cluster-address=gcomm://"+strings.Join(replication, ","))
		must(t, "let rsync read the data", node.giveToMySQL())
		node.answers = node.synced
		if i == 0 {
			joining := node.args
			node.args = append(node.args[:len(node.args):len(node.args)], "--wsrep-new-cluster")
			node.startFor(t)
			node.args = joining // Restart makes the node join the others, and no new cluster
		} else {
			node.startFor(t)
		}
		c.Nodes = append(c.Nodes, node)
	}
	return c
}

// NewDatabase is NewDatabase of a node; the others get the database too. The URL names all nodes, the first one first.
func (c *GaleraCluster) NewDatabase(t testing.TB) string {
	t.Helper()
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return strings.Replace(c.Nodes[0].NewDatabase(t), addrs[0], strings.Join(addrs, ","), 1)
}

// CutOff takes a node's connections to the others. Clients still reach the node.
func (c *GaleraCluster) CutOff(node int) { c.isolate(node, 1) }

// Rejoin lets a node that was cut off connect to the others, and returns when the node has what they have.
func (c *GaleraCluster) Rejoin(node int) {
	c.isolate(node, 0)
	c.Synced(node)
}

func (c *GaleraCluster) isolate(node, isolated int) {
	t := c.Nodes[node].owner()
	t.Helper()
	must(t, "isolate a node", c.Nodes[node].admin(fmt.Sprintf("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=%d'", isolated)))
}

// Synced returns when a node is in the primary component and has what the others have.
func (c *GaleraCluster) Synced(node int) {
	t := c.Nodes[node].owner()
	t.Helper()
	await(t, "the node is back in the cluster", c.Nodes[node].synced)
}

// synced returns an error unless the node is in the primary component and has what the others have.
func (s *MariaDBServer) synced(ctx context.Context) error {
	db, err := s.root()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	var name, value string
	if err := db.QueryRowContext(ctx, "SHOW STATUS LIKE 'wsrep_local_state_comment'").Scan(&name, &value); err != nil {
		return err
	}
	if value != "Synced" {
		return fmt.Errorf("the node is %q", value)
	}
	return nil
}

// giveToMySQL lets the server run as the user mysql if this process is root: a daemon of rsync that root starts gives up its
// rights, and then could not read the data. The folders above the server's have to let the user mysql through.
func (s *MariaDBServer) giveToMySQL() error {
	if os.Getuid() != 0 {
		return nil
	}
	s.args[slices.Index(s.args, asRoot)] = "--user=mysql"
	account, err := user.Lookup("mysql")
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(account.Uid)
	if err != nil {
		return err
	}
	return filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, uid, -1)
	})
}
