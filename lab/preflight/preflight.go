// Package preflight checks, before a sale, that the settings, the stores and the machine are fit for it.
package preflight

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"flashsale/app"
	"flashsale/gate"
	"flashsale/internal/config"
	"flashsale/lab"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service/auth"
)

// ErrNotFit means that a check before a sale has failed.
var ErrNotFit = errors.New("not fit for a sale")

const (
	// lookTimeout bounds a look at a store, port or peer. The look at the sales may take four times as long.
	lookTimeout = 10 * time.Second
	// preflightConns is the size of the database's pool. The checks run one after the other, so few connections suffice.
	preflightConns = 4
	// preflightSales bounds the sales that are checked if none is named.
	preflightSales = 20
)

// Level is the severity of a finding.
type Level string

// The levels. One finding of the level Fail is enough to make the command fail.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is a result of the check with the name Check. Do is what the operator should do; empty: nothing.
type Finding struct {
	Level Level  `json:"level"`
	Check string `json:"check"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
}

func good(check, found string, args ...any) Finding { return OK.of(check, "", found, args...) }

func (l Level) of(check, do, found string, args ...any) Finding {
	return Finding{l, check, fmt.Sprintf(found, args...), do}
}

// when returns a finding if "holds" is true, else the zero Finding, which add, first and cmp.Or leave out.
func (l Level) when(holds bool, check, do, found string, args ...any) Finding {
	if !holds {
		return Finding{}
	}
	return l.of(check, do, found, args...)
}

// first returns the first finding of each check.
func first(list ...Finding) []Finding {
	seen := map[string]bool{"": true} // the check of the zero Finding
	return slices.DeleteFunc(list, func(f Finding) bool {
		again := seen[f.Check]
		seen[f.Check] = true
		return again
	})
}

// preflight makes the checks, and keeps what they found.
type preflight struct {
	settings config.Settings
	valid    bool // settings.Validate returns no error
	options  config.Preflight
	version  string
	now      func() time.Time
	stores   app.Stores
	database *repository.Server // nil: the database could not be asked
	gate     *gate.Gate         // nil: Redis is embedded, or can't be reached
	running  map[string]model.Instance
	findings []Finding
}

// Validate checks the options of the command.
func Validate(o config.Preflight) error {
	for _, peer := range o.Peers {
		if host, port, err := net.SplitHostPort(peer); err != nil || host == "" || port == "" {
			return fmt.Errorf("--peers: want host:port, not %q", peer)
		}
	}
	return cmp.Or(
		config.Refuse(o.Instances < 0 || o.Instances > 1000, "--instances: must be 0 to 1000"),
		config.Refuse(o.Buyers < 1 || o.Buyers > 1_000_000_000, "--buyers: must be 1 to 1000000000"),
		config.Refuse(o.Connections < 1 || o.Connections > 1_000_000, "--connections: must be 1 to 1000000"),
	)
}

// Run makes the checks and prints the findings. It returns ErrNotFit if a check has failed. If ctx ends during the checks, Run
// prints nothing and returns the error of ctx.
func Run(ctx context.Context, cmd config.Command, version string, stdout io.Writer) (err error) {
	p := &preflight{settings: cmd.Settings, options: cmd.Preflight, version: version, now: time.Now}
	defer func() { err = errors.Join(err, p.stores.Close()) }()
	p.look(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	failed := p.count(Fail)
	if p.options.JSON {
		err = lab.WriteJSON(stdout, struct {
			OK       bool      `json:"ok"`
			Version  string    `json:"version"`
			Findings []Finding `json:"findings"`
		}{failed == 0, version, p.findings})
	} else {
		err = p.printText(stdout)
	}
	if err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%w: %d of %d checks failed", ErrNotFit, failed, len(p.findings))
	}
	return nil
}

// add keeps findings, but not the zero Finding.
func (p *preflight) add(list ...Finding) {
	p.findings = append(p.findings, slices.DeleteFunc(list, func(f Finding) bool { return f == Finding{} })...)
}

func (p *preflight) count(l Level) (n int) {
	for _, f := range p.findings {
		if f.Level == l {
			n++
		}
	}
	return n
}

func (p *preflight) printText(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, f := range p.findings {
		fmt.Fprintf(out, "%-4s  %s: %s", f.Level, f.Check, f.Found)
		if f.Do != "" {
			fmt.Fprintf(out, "  do: %s", f.Do)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "checks: %d, warnings: %d, failed: %d\n", len(p.findings), p.count(Warn), p.count(Fail))
	return out.Flush()
}

// look makes all checks, in the order in which the findings are printed.
func (p *preflight) look(ctx context.Context) {
	if err := p.settings.Validate(); err != nil {
		p.add(Fail.of("settings", "correct it: no instance starts with these settings", "%v", err))
	} else {
		p.valid = true
		p.add(judgeSettings(p.settings)...)
	}
	p.lookAtDatabase(ctx)
	servers := p.lookAtRedis(ctx)
	p.lookAtReplicas(ctx)
	p.lookAtQueue(ctx)
	p.lookAtInstances(ctx)
	instances := cmp.Or(p.wanted(), len(p.running), 1)
	if p.database != nil {
		p.add(judgeDatabase(*p.database, p.settings, instances)...)
		p.add(judgeMachineClock(p.skew()))
	}
	room, units := int64(0), int64(0)
	for _, o := range p.lookAtSales(ctx) {
		room += gate.Room(o, p.options.Buyers)
		units = max(units, o.Stock.Quota)
	}
	p.lookAtRehearsals(ctx, units)
	for _, s := range servers {
		p.add(judgeRedis(s, p.settings, instances, room)...)
		if p.database != nil {
			p.add(judgeRedisClock(s.Addr, s.Clock.Sub(s.At)-p.skew()))
		}
	}
	p.add(
		judgeFiles(p.settings, p.options.Connections, max(1, len(servers))),
		lookAtPort(ctx, "machine.http_addr", p.settings.HTTPAddr, "/healthz"),
		lookAtPort(ctx, "machine.ops_addr", p.settings.OpsAddr, "/metrics"),
	)
	for _, peer := range p.options.Peers {
		p.add(lookAtPeer(ctx, peer))
	}
}

// skew returns how far the database's clock is ahead of this machine's. p.database must not be nil.
func (p *preflight) skew() time.Duration { return p.database.Clock.Sub(p.database.At) }

// hasSchema reports whether the database is known to have the schema of this binary.
func (p *preflight) hasSchema() bool {
	return p.database != nil && p.database.Applied == p.database.Newest
}

// reach calls "look" with a time limit of lookTimeout. An error of "look" becomes a finding of this level.
func (p *preflight) reach(ctx context.Context, level Level, check, do string, look func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if err := look(ctx); err != nil {
		p.add(level.of(check, do, "%s", oneLine(err)))
	}
}

// lookAtDatabase opens the database and reads the facts about it.
func (p *preflight) lookAtDatabase(ctx context.Context) {
	p.reach(ctx, Fail, "database.reach", "start it, or correct --database or the network", func(ctx context.Context) (err error) {
		if p.stores.Database, err = repository.Open(ctx, p.settings.Database, preflightConns); err != nil {
			return err
		}
		server, err := p.stores.Database.Server(ctx, p.now)
		if err == nil {
			p.database = &server
		}
		return err
	})
}

func (p *preflight) lookAtRedis(ctx context.Context) (servers []gate.Server) {
	if p.settings.Redis == config.EmbeddedRedis {
		p.add(Warn.of("redis.reach", "for a real sale run Redis, and set --redis",
			"inside the server's process, where nobody else can look: for one instance, and what is queued ends with it"))
		return nil
	}
	p.reach(ctx, Fail, "redis.reach", "start it, or correct --redis or the network", func(ctx context.Context) error {
		if err := p.stores.OpenRedis(p.settings.Redis); err != nil {
			return err
		}
		asked := gate.New(p.stores.Redis, "preflight")
		found, err := asked.Servers(ctx, p.now)
		if err == nil {
			servers, p.gate = found, asked
		}
		return err
	})
	return servers
}

// lookAtReplicas checks the servers of --redis-replicas, from which pages show the stock.
func (p *preflight) lookAtReplicas(ctx context.Context) {
	if p.settings.RedisReplicas == "" {
		return
	}
	p.reach(ctx, Warn, "replica", "start it, or correct --redis-replicas or the network", func(ctx context.Context) (err error) {
		var servers []gate.Server
		if p.stores.Replicas, err = gate.ConnectReplicas(p.settings.RedisReplicas); err == nil {
			servers, err = gate.New(p.stores.Replicas, "preflight").Servers(ctx, p.now)
		}
		if err != nil {
			return fmt.Errorf("pages show the database's stock: %w", err)
		}
		for _, s := range servers {
			p.add(judgeReplica(s))
		}
		return nil
	})
}

// lookAtQueue checks that the broker of the queue, if there is one, can be reached.
func (p *preflight) lookAtQueue(ctx context.Context) {
	const check = "queue.reach"
	s := &p.settings
	switch {
	case s.Queue == "redis-stream" || s.Queue == "redis-list":
		if p.gate != nil || s.Redis == config.EmbeddedRedis {
			p.add(good(check, "%s: Redis itself", s.Queue))
		}
		return
	case !p.valid: // look has reported what is wrong
		return
	}
	do := "start it, or correct --queue-url or the network; until then instances settle what they admit themselves"
	p.reach(ctx, Fail, check, do, func(ctx context.Context) error {
		err := p.stores.OpenQueue(s, "preflight", slog.New(slog.DiscardHandler))
		if err == nil {
			reach := p.stores.Queue.Ping
			if shy, ok := p.stores.Queue.(interface {
				Reach(ctx context.Context) error
			}); ok {
				reach = shy.Reach // Ping would create a queue that is missing
			}
			err = reach(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.Queue, err)
		}
		p.add(good(check, "%s answers", s.Queue))
		return nil
	})
}

// wanted returns how many instances have to run at least; 0: the options do not say.
func (p *preflight) wanted() int { return max(p.options.Instances, len(p.options.Peers)) }

func (p *preflight) lookAtInstances(ctx context.Context) {
	if p.gate == nil || !p.hasSchema() {
		return
	}
	p.reach(ctx, Fail, "instances.running", "look at the stores", func(ctx context.Context) error {
		mark, err := p.mark(ctx)
		if err == nil {
			p.running, err = p.gate.Running(ctx, p.now().Add(p.skew()))
		}
		if err == nil {
			p.add(judgeInstances(p.running, p.wanted(), p.version, p.settings.Strategy, mark)...)
		}
		return err
	})
}

// mark returns the mark of instances that have this command's secrets. The mark is empty if it can't be known.
func (p *preflight) mark(ctx context.Context) (string, error) {
	if !p.valid || p.settings.Secret == "" {
		return "", nil
	}
	key, err := p.stores.Database.KeptKey(ctx, repository.OrderIDKey)
	if err != nil || key == nil {
		return "", err
	}
	return auth.Mark(key, []byte(p.settings.Secret), []byte(p.settings.PaymentSecret)), nil
}

// lookAtSales checks and returns the sales of p.offers, at most preflightSales.
func (p *preflight) lookAtSales(ctx context.Context) []model.Offer {
	if !p.hasSchema() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 4*lookTimeout) // an audit may be repeated several times
	defer cancel()
	offers, err := p.offers(ctx)
	if err != nil {
		p.add(Fail.of("sale", "look at the database", "%s", oneLine(err)))
		return nil
	}
	p.add(cmp.Or(
		Fail.when(len(offers) == 0 && p.options.Sale != "", "sale", "flashsale audit lists the sales", "there is no sale %s", p.options.Sale),
		Warn.when(len(offers) == 0, "sale", "create one, or name one by --sale", "no sale is open or to come"),
		Warn.when(len(offers) > preflightSales, "sale", "name one by --sale", "%d sales are open or to come; looked at the first %d", len(offers), preflightSales),
	))
	offers = offers[:min(len(offers), preflightSales)]
	auditor := p.stores.Auditor(p.gate)
	for _, o := range offers {
		audit, _, err := auditor.AuditSettled(ctx, o.ID)
		if err != nil {
			p.add(Fail.of("sale.books", "look at the stores", "%s: %s", o.ID, oneLine(err)))
			continue
		}
		p.add(judgeSale(o, audit, p.settings, p.gate != nil, p.now().Add(p.skew()))...)
	}
	return offers
}

// lookAtRehearsals compares the expected buyers and these units with the largest rehearsal that this version has passed.
func (p *preflight) lookAtRehearsals(ctx context.Context, units int64) {
	if !p.hasSchema() {
		return
	}
	p.reach(ctx, Fail, "rehearsal", "look at the database", func(ctx context.Context) error {
		largest, ok, err := p.stores.Database.LargestRehearsal(ctx, p.version)
		if err == nil {
			p.add(cmp.Or(
				Warn.when(!ok, "rehearsal", "flashsale rehearse", "no rehearsal of version %s has passed", p.version),
				judgeRehearsal(largest, p.options.Buyers, units),
			))
		}
		return err
	})
}

// offers returns the sale that --sale names. If none is named, it returns the sales that have not ended, without shadow sales,
// closed sales and the lines of campaigns.
func (p *preflight) offers(ctx context.Context) (list []model.Offer, err error) {
	if p.options.Sale != "" {
		offer, ok, err := p.stores.Database.Offer(ctx, p.options.Sale)
		if err != nil || !ok {
			return nil, err
		}
		return []model.Offer{offer}, nil
	}
	all, err := p.stores.Database.LiveOffers(ctx, 0)
	for _, o := range all {
		if !model.IsShadow(o.ID) && o.Status != model.SaleClosed && !o.IsCampaignLine() {
			list = append(list, o)
		}
	}
	return list, err
}

// lookAtPort checks that an instance can listen on an address, or that the path is answered with 200 there. If the address is
// empty or "off", it returns the zero Finding.
func lookAtPort(ctx context.Context, check, addr, path string) Finding {
	if addr == "" || addr == "off" {
		return Finding{}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", addr)
	if err == nil {
		_ = listener.Close()
		return good(check, "%s is free", addr)
	}
	host, port, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if status, _, askErr := get(ctx, "http://"+net.JoinHostPort(host, port)+path); askErr == nil && status == http.StatusOK {
		return good(check, "an instance listens on %s", addr)
	}
	return Fail.of(check, "end what is there, or choose another", "an instance could not listen on %s: %s", addr, oneLine(err))
}

// lookAtPeer asks an instance whether it is ready.
func lookAtPeer(ctx context.Context, peer string) Finding {
	const check = "peer"
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	status, body, err := get(ctx, "http://"+peer+"/readyz")
	if err != nil {
		return Fail.of(check, "start it, or correct the network", "%s does not answer: %s", peer, oneLine(err))
	}
	var ready struct {
		Status       string
		Dependencies map[string]string
	}
	if err := json.Unmarshal(body, &ready); err != nil || ready.Status == "" {
		return Fail.of(check, "name the instances' --http-addr", "what answers at %s is no instance", peer)
	}
	var down []string
	for name, state := range ready.Dependencies {
		if state != "ok" {
			down = append(down, name)
		}
	}
	return cmp.Or(
		Fail.when(status != http.StatusOK, check, "see its log", "%s is %s: %s", peer, ready.Status, strings.Join(down, ", ")),
		Fail.when(len(down) > 0, check, "see its log; it sells, but more slowly", "%s is ready without %s", peer, strings.Join(down, ", ")),
		good(check, "%s is ready", peer),
	)
}

// maxAnswer bounds the bytes that are read of an instance's answer.
const maxAnswer = 64 << 10

func get(ctx context.Context, url string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return res.StatusCode, body, err
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
