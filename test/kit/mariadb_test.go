package kit

import (
	"os"
	"strings"
	"testing"
)

func TestMariaDBTakesArgumentsOverItsOwn(t *testing.T) {
	server := MariaDB(t, "--max-connections=20")
	server.Kill()
	if server.Running() {
		t.Error("a killed server is said to run")
	}
	server.Restart() // must keep the arguments
	if !server.Running() {
		t.Error("a server that was started again is said not to run")
	}
	var most int
	if err := server.Root(t).QueryRowContext(t.Context(), "SELECT @@max_connections").Scan(&most); err != nil || most != 20 {
		t.Fatalf("it takes %d connections, %v; want 20", most, err)
	}
}

func TestMariaDBInAFolder(t *testing.T) {
	folder := t.TempDir()
	t.Run("in use", func(t *testing.T) {
		var data, temporary string
		db := open(t, MariaDBIn(t, folder).NewDatabase(t))
		if err := db.QueryRowContext(t.Context(), "SELECT @@datadir, @@tmpdir").Scan(&data, &temporary); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(data, folder+"/") || !strings.HasPrefix(temporary, folder+"/") {
			t.Errorf("files in %s and %s, want them below %s", data, temporary, folder)
		}
	})
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
