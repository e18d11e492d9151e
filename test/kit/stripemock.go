package kit

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// StripeMock starts Stripe's own mock of its API for this test, and ends it with the test. It checks requests by Stripe's
// description of the API, and answers with examples; it keeps nothing. Its version is that in tools/go.mod. It returns the
// base URL of the server.
func StripeMock(t testing.TB) string {
	t.Helper()
	root, err := os.Getwd()
	must(t, "find the project", err)
	for {
		if _, err := os.Stat(filepath.Join(root, "tools", "go.mod")); err == nil {
			break
		}
		if filepath.Dir(root) == root {
			t.Fatal("kit: no folder above this one has tools/go.mod")
		}
		root = filepath.Dir(root)
	}
	program := filepath.Join(t.TempDir(), "stripe-mock")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-modfile=tools/go.mod", "-o", program, "github.com/stripe/stripe-mock")
	cmd.Dir = root
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kit: build stripe-mock: %v\n%s", err, output)
	}
	s := newServer(t, program, "", "")
	s.listen = func(port int) (args, env []string) {
		return []string{"-http-addr", loopback(port), "-https-addr", loopback(0)}, nil
	}
	url := func() string { return "http://" + s.Addr() }
	s.answers = func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url(), nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized { // there is no key in the request
			return errors.New(answer.Status)
		}
		return nil
	}
	s.startFor(t)
	return url()
}
