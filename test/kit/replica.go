package kit

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Replicated starts a primary and a read-only replica for this test, and ends them with the test. A commit of the primary is
// confirmed when the replica has received it (semi-synchronous replication); without a replica it waits for ten minutes.
func Replicated(t testing.TB) (primary, replica *MariaDBServer) {
	t.Helper()
	primary = MariaDB(t, "--server-id=1", "--log-bin=bin", "--sync-binlog=1", "--rpl-semi-sync-master-enabled=ON",
		"--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--rpl-semi-sync-master-timeout=600000")
	replica = MariaDB(t, "--server-id=2", "--log-bin=bin", "--log-slave-updates=ON", "--read-only=ON", "--rpl-semi-sync-slave-enabled=ON")
	must(t, "start the replica", replica.admin(fmt.Sprintf(
		"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', MASTER_USE_GTID=slave_pos; START SLAVE", primary.Port())))
	await(t, "the replica is connected", func(ctx context.Context) error {
		db, err := primary.root()
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		var name string
		var clients int
		err = db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_clients'").Scan(&name, &clients)
		if err == nil && clients == 0 {
			err = errors.New("no replica")
		}
		return err
	})
	return primary, replica
}
