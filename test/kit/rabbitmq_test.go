package kit

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRabbitMQKeepsItsDataOverKill(t *testing.T) {
	var addrs []string
	t.Run("in use", func(t *testing.T) {
		broker := RabbitMQ(t)
		url := broker.URL()
		addrs = []string{broker.Addr(), broker.epmd.Addr()}
		data := filepath.Join(broker.dir, "data", "*")
		before, err := filepath.Glob(data)
		if err != nil || len(before) == 0 {
			t.Errorf("no data in its folder: %v", err)
		}
		broker.Kill()
		broker.Restart()
		if after, err := filepath.Glob(data); err != nil || strings.Join(after, " ") != strings.Join(before, " ") || broker.URL() != url {
			t.Errorf("on %s with %v it became one on %s with %v, %v", url, before, broker.URL(), after, err)
		}
	})
	for _, addr := range addrs {
		gone(t, addr)
	}
}

// The broker and its epmd end with the test process, also when the test process is killed.
func TestRabbitMQEndsWithTheTestProcess(t *testing.T) {
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRabbitMQAsChild$")
	process.Env = append(os.Environ(), asChild+"=1", "TMPDIR="+t.TempDir())
	process.Stderr = os.Stderr
	stdout, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	addrs, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_ = process.Process.Kill()
	_ = process.Wait() // returns an error, since the process was killed
	if len(strings.Fields(addrs)) != 2 {
		t.Fatalf("the child told %q", addrs)
	}
	for addr := range strings.FieldsSeq(addrs) {
		gone(t, addr)
	}
}

// TestRabbitMQAsChild runs in the child process of TestRabbitMQEndsWithTheTestProcess. Otherwise it does nothing.
func TestRabbitMQAsChild(t *testing.T) {
	if os.Getenv(asChild) == "" {
		return
	}
	broker := RabbitMQ(t)
	if _, err := io.WriteString(os.Stdout, broker.Addr()+" "+broker.epmd.Addr()+"\n"); err != nil {
		t.Fatal(err)
	}
	select {} // wait to be killed
}

// gone waits until nothing listens at an address. It polls, since no event announces that.
func gone(t *testing.T, addr string) {
	t.Helper()
	deadline := time.After(startTimeout)
	for {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return
		}
		_ = conn.Close()
		select {
		case <-time.After(pollEvery):
		case <-deadline:
			t.Fatalf("something listens on %s still", addr)
		}
	}
}
