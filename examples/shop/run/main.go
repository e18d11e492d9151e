// Command run starts the example: the shop and the engine, as two processes on the loopback address. It connects them as an
// operator does, buys once as a customer does, and leaves both running until it is interrupted.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	var o options
	flag.StringVar(&o.shopAddr, "shop", "127.0.0.1:8090", "address of the shop")
	flag.StringVar(&o.engineAddr, "engine", "127.0.0.1:8091", "address of the engine; port 0 is a free one, here and for the shop")
	flag.StringVar(&o.source, "source", "../..", "folder of the engine's source")
	once := flag.Bool("once", false, "end after the purchase")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o.out, o.logs = os.Stdout, os.Stderr
	if err := run(ctx, o, *once); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

type options struct {
	shopAddr, engineAddr string
	source               string
	out, logs            io.Writer
}

func run(ctx context.Context, o options, once bool) (err error) {
	e, err := start(ctx, o)
	defer func() { err = errors.Join(err, e.stop()) }()
	if err == nil {
		_, err = e.purchase(ctx)
	}
	if err != nil {
		return err
	}
	e.say("the shop: %s   its orders: %s/orders", e.shop, e.shop)
	e.say("the engine: %s   its console: %s/console, admin, password %s", e.engine, e.engine, e.password)
	if once {
		return nil
	}
	e.say("Ctrl-C ends both")
	select {
	case <-ctx.Done():
	case err = <-e.ended:
	}
	return err
}

// example is the running example.
type example struct {
	options
	folder       string // of the programs and their data
	shop, engine string // URLs
	password     string // of the operator
	sale         string
	shopLog      <-chan string
	stops        []func() error // each ends a process
	ended        chan error     // gets an error when a process ends
}

func (e *example) say(format string, values ...any) { fmt.Fprintf(e.out, format+"\n", values...) }

// start builds both programs, starts them and connects them. The caller must call stop of e, even after an error.
func start(ctx context.Context, o options) (e *example, err error) {
	e = &example{options: o, password: rand.Text(), ended: make(chan error, 2)}
	if e.folder, err = os.MkdirTemp("", "flashsale-example-"); err != nil {
		return e, err
	}
	shop, engine := filepath.Join(e.folder, "shop"), filepath.Join(e.folder, "flashsale")
	e.say("building the engine and the shop, which takes some minutes the first time")
	if err := errors.Join(e.build(ctx, o.source, engine), e.build(ctx, filepath.Join(o.source, "examples", "shop"), shop)); err != nil {
		return e, err
	}

	// The shop starts first, because the engine asks it for the keys of customers' tokens.
	connection := filepath.Join(e.folder, "connection.json")
	if e.shopLog, err = e.start(nil, shop, "-addr="+o.shopAddr, "-connection="+connection); err != nil { //nolint:contextcheck // a process ends by its own stop
		return e, err
	}
	if e.shop, err = e.find(ctx, e.shopLog, `shop is at (\S+)`); err != nil {
		return e, err
	}
	e.say("the shop runs")
	engineLog, err := e.start([]string{"FLASHSALE_ADMIN_PASSWORD=" + e.password}, engine, //nolint:contextcheck // as above
		"--http-addr="+o.engineAddr, "--ops-addr=off", "--database=sqlite:"+filepath.Join(e.folder, "flashsale.db"), "--demo=false",
		"--issuer=shop="+e.shop, "--client-id=storefront", "--audience=flashsale", "--accounts=closed",
		"--payment=handoff", "--checkout-url="+e.shop+"/checkout", "--webhook-private", "--log-level=warn")
	if err != nil {
		return e, err
	}
	if e.engine, err = e.find(ctx, engineLog, `is at (\S+)`); err != nil {
		return e, err
	}
	e.say("the engine runs, with the shop as its issuer and its checkout")
	return e, e.connect(ctx, connection)
}
