package kit

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

func TestNginxLeavesNothingBehind(t *testing.T) {
	var folder string
	var worker int
	t.Run("in use", func(t *testing.T) {
		server := Nginx(t, func(folder string, port int) {
			config := fmt.Sprintf("pid nginx.pid;\nevents {}\nhttp {\n"+
				"client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; scgi_temp_path scgi; uwsgi_temp_path uwsgi;\n"+
				"access_log off;\nserver { listen 127.0.0.1:%d; return 200 $pid; }\n}\n", port)
			if err := os.WriteFile(filepath.Join(folder, "nginx.conf"), []byte(config), 0o600); err != nil {
				t.Error(err)
			}
		})
		folder = server.Folder()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.Addr(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		pid, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if worker, err = strconv.Atoi(string(pid)); err != nil || worker == server.server.cmd.Process.Pid {
			t.Fatalf("answered by process %q, want a worker", pid)
		}
	})
	if err := syscall.Kill(worker, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the worker is left: %v", err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}
