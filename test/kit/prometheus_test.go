package kit

import (
	"errors"
	"os"
	"testing"
)

func TestPrometheusLeavesNothingBehind(t *testing.T) {
	var folder string
	t.Run("in use", func(t *testing.T) {
		server := Prometheus(t, "global: {scrape_interval: 1s}\n")
		folder = server.dir
		if err := server.ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}
