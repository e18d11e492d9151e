// Command flashsale is a flash-sale engine: it sells a quota of units when many more buyers come than there are units.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"flashsale/app/command"
	"flashsale/internal/config"
)

// version is the newest version in CHANGELOG.md. The linker may set another.
var version = "0.1.0"

const (
	exitDone   = 0 // also for help
	exitFailed = 1
	exitUsage  = 2 // the arguments or settings are refused
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run executes the command in args until the command is done or ctx ends. It returns the exit code, and writes errors to stderr.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	cmd, err := config.Parse(args, getenv, stdout, stderr)
	if errors.Is(err, config.ErrHelp) {
		return exitDone
	}
	if err == nil {
		err = command.Validate(&cmd)
	}
	if err != nil {
		fmt.Fprintf(stderr, "flashsale: %v\n", err)
		return exitUsage
	}
	if err := command.Execute(ctx, cmd, version, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "flashsale: %v\n", err)
		return exitFailed
	}
	return exitDone
}
