// Command flashsale is a flash-sale engine: it sells a fixed quota of something scarce, in seconds, to far more
// people than can have it, and never one unit too many.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"flashsale/app"
	"flashsale/config"
)

// version is set by the linker.
var version = "dev"

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the whole program but for its process: it returns the exit code when the command is done or ctx ends.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	cmd, err := config.Parse(args, getenv, stdout, stderr)
	if errors.Is(err, config.ErrHelp) {
		return exitDone
	}
	if err == nil {
		err = app.Validate(&cmd)
	}
	if err != nil {
		fmt.Fprintf(stderr, "flashsale: %v\n", err)
		return exitUsage
	}
	if err := app.Execute(ctx, cmd, version, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "flashsale: %v\n", err)
		return exitFailed
	}
	return exitDone
}
