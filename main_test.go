package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite" // the driver "sqlite"
	"github.com/redis/go-redis/v9"

	"flashsale/test/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }

const patience = time.Minute

// console is what a command prints; others may wait for a part of it.
type console struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newConsole() *console { return &console{changed: make(chan struct{}, 1)} }

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
	return c.text.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// find waits until a pattern shows, and gives its first group.
func (c *console) find(t *testing.T, pattern string) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(c.String()); found != nil {
			return found[1]
		}
		select {
		case <-c.changed:
		case <-deadline:
			t.Fatalf("no %s in %q", pattern, c)
		}
	}
}

// command runs a command to its end.
func command(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, errOut := newConsole(), newConsole()
	code = run(ctx, args, func(name string) string { return env[name] }, out, errOut)
	return code, out.String(), errOut.String()
}

// serving is a server that was started as a command.
type serving struct {
	url            string
	stdout, stderr *console
	stop           func() (code int) // as SIGTERM does
}

// serve starts the server with these arguments, on a free port.
func serve(t *testing.T, env map[string]string, args ...string) *serving {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &serving{stdout: newConsole(), stderr: newConsole()}
	ended := make(chan int, 1)
	args = append(args, "--http-addr=127.0.0.1:0", "--ops-addr=off", "--log-level=error", "--ack-wait=10s")
	go func() { ended <- run(ctx, args, func(name string) string { return env[name] }, s.stdout, s.stderr) }()
	s.stop = sync.OnceValue(func() int {
		cancel()
		select {
		case code := <-ended:
			return code
		case <-time.After(10 * time.Second):
			t.Error("not stopped within ten seconds")
			return -1
		}
	})
	t.Cleanup(func() { s.stop() })
	s.url = s.stdout.find(t, `is at (http://127\.0\.0\.1:\d+)\n`)
	return s
}

// ask sends a request and decodes its answer.
func (s *serving) ask(t *testing.T, token, method, path string, body any, want int) map[string]any {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		t.Fatalf("%s %s: %d %s, %v, want %d", method, path, res.StatusCode, answer, err, want)
	}
	var doc map[string]any
	if err := json.Unmarshal(answer, &doc); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, answer)
	}
	return doc
}

func (s *serving) logIn(t *testing.T, name, password string) string {
	t.Helper()
	token, _ := s.ask(t, "", "POST", "/api/v1/sessions", map[string]any{"name": name, "password": password}, 200)["token"].(string)
	return token
}

// buy buys a unit of the first sale there is.
func (s *serving) buy(t *testing.T, token string) (saleID, orderID string) {
	t.Helper()
	sales, _ := s.ask(t, "", "GET", "/api/v1/sales", nil, 200)["sales"].([]any)
	if len(sales) == 0 {
		t.Fatal("there is no sale")
	}
	saleID, _ = sales[0].(map[string]any)["id"].(string)
	path, _ := s.ask(t, token, "POST", "/api/v1/sales/"+saleID+"/path", nil, 200)["path"].(string)
	orderID, _ = s.ask(t, token, "POST", "/api/v1/sales/"+saleID+"/"+path+"/orders", map[string]any{"quantity": 1}, 201)["id"].(string)
	return saleID, orderID
}

func sqliteFile(t *testing.T) (path, flag string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "data", "flashsale.db")
	return path, "--database=sqlite:" + path
}

func TestExitCodes(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	mariadb := kit.MariaDB(t)
	away := "--database=" + mariadb.NewDatabase(t)
	mariadb.Kill()
	outside := []string{away, "--redis=redis://127.0.0.1:1/0", "--secret=" + strings.Repeat("s", 32), "--admin-password=12345678"}
	_, fresh := sqliteFile(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		env    map[string]string
		args   []string
		code   int
		stdout string // a pattern; empty: nothing
		stderr string
	}{
		"version":               {nil, []string{"version"}, 0, `^flashsale 0\.1\.0\n$`, ""},
		"help":                  {nil, []string{"--help"}, 0, `--http-addr`, ""},
		"help of a command":     {nil, []string{"tokens", "--help"}, 0, `--users`, ""},
		"an unknown command":    {nil, []string{"sell"}, 2, "", `sell`},
		"an unknown flag":       {nil, []string{"--colour=red"}, 2, "", `--colour`},
		"a bad setting":         {nil, []string{"--ack-wait=1h"}, 2, "", `--ack-wait`},
		"a bad variable":        {map[string]string{"FLASHSALE_LIMIT_RATE": "0"}, nil, 2, "", `--limit-rate`},
		"a missing file":        {nil, []string{"--config=/nowhere/at.all"}, 2, "", `--config`},
		"no secret":             {nil, []string{"--redis=redis://127.0.0.1:1/0", fresh}, 2, "", `--secret`},
		"no users":              {nil, []string{"tokens"}, 2, "", `--users`},
		"users below none":      {nil, []string{"tokens", "--users=-1"}, 2, "", `--users`},
		"too many users":        {nil, []string{"tokens", "--users=10000001"}, 2, "", `--users`},
		"a bad prefix":          {nil, []string{"tokens", "--users=1", "--prefix=a b"}, 2, "", `--prefix`},
		"a long prefix":         {nil, []string{"tokens", "--users=100", "--prefix=" + strings.Repeat("x", 62)}, 2, "", `--prefix`},
		"no time for tokens":    {nil, []string{"tokens", "--users=1", "--ttl=0s"}, 2, "", `--ttl`},
		"a bad store, audit":    {nil, []string{"audit", "--redis=nowhere"}, 2, "", `--redis`},
		"a bad store, migrate":  {nil, []string{"migrate", "up", "--database=nowhere"}, 2, "", `--database`},
		"no database, serve":    {nil, outside, 1, "", `database`},
		"no database, migrate":  {nil, append([]string{"migrate", "up"}, outside...), 1, "", `database`},
		"no database, audit":    {nil, append([]string{"audit"}, outside...), 1, "", `database`},
		"no SQLite file, serve": {nil, []string{"--database=sqlite:" + file, "--http-addr=127.0.0.1:0", "--ops-addr=off"}, 1, "", `database`},
		"no folder":             {nil, []string{"--database=sqlite:" + file + "/below/x.db", "--http-addr=127.0.0.1:0", "--ops-addr=off"}, 1, "", `database`},
		"a taken port":          {nil, []string{fresh, "--ops-addr=off", "--http-addr=" + taken.Addr().String()}, 1, "", `--http-addr`},
		"a taken ops port":      {nil, []string{fresh, "--http-addr=127.0.0.1:0", "--ops-addr=" + taken.Addr().String()}, 1, "", `--ops-addr`},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := command(t, tc.env, tc.args...)
			if code != tc.code {
				t.Errorf("exit %d, want %d", code, tc.code)
			}
			for _, printed := range []struct{ on, text, want string }{{"stdout", stdout, tc.stdout}, {"stderr", stderr, tc.stderr}} {
				if (printed.want == "") != (printed.text == "") || !regexp.MustCompile(printed.want).MatchString(printed.text) {
					t.Errorf("%s: %q, want %q", printed.on, printed.text, printed.want)
				}
			}
			if lines := strings.Count(stderr, "\n"); stderr != "" && (lines != 1 || !strings.HasPrefix(stderr, "flashsale: ")) {
				t.Errorf("stderr is not one line of ours: %q", stderr)
			}
			if strings.Contains(stderr, "goroutine") {
				t.Errorf("a stack: %q", stderr)
			}
		})
	}
}

// The first start makes everything and tells the operator's password; the second finds it all there.
func TestServeTwice(t *testing.T) {
	path, database := sqliteFile(t)
	first := serve(t, nil, database)
	password := first.stdout.find(t, `password (\S+)`)
	admin := first.logIn(t, "admin", password)
	if state := first.ask(t, admin, "GET", "/api/v1/admin/stats", nil, 200); state["instances"] == nil {
		t.Errorf("%v", state)
	}
	page := first.stdout.find(t, `next: open http://127\.0\.0\.1:\d+(/sales/\S+),`)
	req, err := http.NewRequestWithContext(t.Context(), "GET", first.url+page, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("the page that it says to open answers %d", res.StatusCode)
	}
	ann := first.ask(t, "", "POST", "/api/v1/users", map[string]any{"name": "Ann", "password": "correct horse"}, 201)["token"].(string)
	saleID, orderID := first.buy(t, ann)
	if code := first.stop(); code != 0 {
		t.Fatalf("exit %d, %s", code, first.stderr)
	}
	if first.stderr.String() != "" {
		t.Errorf("errors were logged: %s", first.stderr)
	}

	secret, err := os.Stat(strings.TrimSuffix(path, ".db") + ".secret")
	if err != nil || secret.Mode().Perm() != 0o600 {
		t.Errorf("the kept secret: %v, %v", secret, err)
	}

	second := serve(t, nil, database)
	if order := second.ask(t, ann, "GET", "/api/v1/orders/"+orderID, nil, 200); order["status"] != "pending" || order["sale_id"] != saleID {
		t.Errorf("the order of before: %v", order)
	}
	ann = second.logIn(t, "Ann", "correct horse")
	if again, _ := second.buy(t, ann); again != saleID {
		t.Errorf("another sale %s was made over %s", again, saleID)
	}
	second.ask(t, ann, "POST", "/api/v1/orders/"+orderID+"/payments", nil, 201)
	second.logIn(t, "admin", password)
	operator := second.logIn(t, "admin", password)
	// An order that the database took while the gate came back is unknown to the gate until the auditor has looked.
	var books map[string]any
	within(t, "the books agree with the gate", func() bool {
		books = second.ask(t, operator, "GET", "/api/v1/admin/sales/"+saleID+"/audit", nil, 200)
		return books["ok"] == true
	})
	if books["held"] != 2.0 {
		t.Errorf("books %v", books)
	}
	if code := second.stop(); code != 0 {
		t.Errorf("exit %d, %s", code, second.stderr)
	}
	if strings.Contains(second.stdout.String(), "password") {
		t.Errorf("the password was shown again: %s", second.stdout)
	}

	// A password that is set goes before the one that was made, and isn't shown.
	third := serve(t, map[string]string{"FLASHSALE_ADMIN_PASSWORD": "another horse"}, database)
	third.logIn(t, "admin", "another horse")
	third.ask(t, "", "POST", "/api/v1/sessions", map[string]any{"name": "admin", "password": password}, 401)
	if strings.Contains(third.stdout.String(), "password") || strings.Contains(third.stdout.String()+third.stderr.String(), "another horse") {
		t.Errorf("printed %s %s", third.stdout, third.stderr)
	}
}

// A stop finishes what runs: a buyer who waits for an order gets an answer, and the order is there.
func TestStopFinishesWhatRuns(t *testing.T) {
	path, database := sqliteFile(t)
	s := serve(t, nil, database)
	ann := s.ask(t, "", "POST", "/api/v1/users", map[string]any{"name": "Ann", "password": "correct horse"}, 201)["token"].(string)
	saleID, _ := s.buy(t, ann)
	pathToken, _ := s.ask(t, ann, "POST", "/api/v1/sales/"+saleID+"/path", nil, 200)["path"].(string)

	conn := lock(t, path)
	answered := make(chan int, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/api/v1/sales/"+saleID+"/"+pathToken+"/orders", strings.NewReader(`{"quantity":1}`))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+ann)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		_ = res.Body.Close()
		answered <- res.StatusCode
	}()
	within(t, "the attempt is queued", func() bool {
		orders := s.ask(t, ann, "GET", "/api/v1/sales/"+saleID, nil, 200)
		return orders["available"] == 99.0 && inflight(t, s, saleID) == 1
	})
	code := make(chan int, 1)
	go func() { code <- s.stop() }()
	if status := <-answered; status != http.StatusCreated && status != http.StatusAccepted {
		t.Errorf("the buyer who waited was answered %d", status)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != 0 {
		t.Errorf("exit %d, %s", got, s.stderr)
	}
	db := open(t, path)
	var orders, held int
	if err := db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM orders), (SELECT held FROM stock)").Scan(&orders, &held); err != nil || orders != 2 || held != 2 {
		t.Errorf("%d orders, %d units held, %v", orders, held, err)
	}
}

// inflight asks the audit how many units are on their way.
func inflight(t *testing.T, s *serving, saleID string) float64 {
	t.Helper()
	admin := s.logIn(t, "admin", s.stdout.find(t, `password (\S+)`))
	gate, _ := s.ask(t, admin, "GET", "/api/v1/admin/sales/"+saleID+"/audit", nil, 200)["gate"].(map[string]any)
	n, _ := gate["inflight"].(float64)
	return n
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func open(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// lock keeps others from writing to an SQLite file until the connection says ROLLBACK.
func lock(t *testing.T, path string) *sql.Conn {
	t.Helper()
	conn, err := open(t, path).Conn(t.Context())
	if err == nil {
		_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// An empty secret signs for everybody: one that was kept badly must not be taken.
func TestKeptSecretThatIsTooShort(t *testing.T) {
	for name, kept := range map[string]string{"empty": "", "a line break": "\n", "a few bytes": "abc\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, database := sqliteFile(t)
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(strings.TrimSuffix(path, ".db")+".secret", []byte(kept), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			out, errOut := newConsole(), newConsole()
			code := run(ctx, []string{database, "--http-addr=127.0.0.1:0", "--ops-addr=off", "--log-level=error"}, func(string) string { return "" }, out, errOut)
			if code != 1 || !strings.Contains(errOut.String(), ".secret") {
				t.Errorf("exit %d, printed %q %q", code, out, errOut)
			}
		})
	}
}

// The tokens that the command prints are those that the server takes.
func TestTokens(t *testing.T) {
	_, database := sqliteFile(t)
	t.Run("before there is a server", func(t *testing.T) {
		if code, stdout, stderr := command(t, nil, "tokens", "--users=1", database); code != 1 || stdout != "" || !strings.Contains(stderr, "--secret") {
			t.Errorf("exit %d, %q, %q", code, stdout, stderr)
		}
	})
	s := serve(t, nil, database)
	code, stdout, stderr := command(t, nil, "tokens", "--users=12", "--prefix=load-", "--ttl=1h", database)
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	if err != nil || len(rows) != 13 || strings.Join(rows[0], ",") != "user_id,token" {
		t.Fatalf("%v in %q", err, stdout)
	}
	for i, row := range rows[1:] {
		if want := fmt.Sprint("load-", i+1); row[0] != want {
			t.Errorf("row %d is of %s, want %s", i+1, row[0], want)
		}
	}
	_, orderID := s.buy(t, rows[1][1])
	s.ask(t, rows[1][1], "GET", "/api/v1/orders/"+orderID, nil, 200)
	s.ask(t, rows[2][1], "GET", "/api/v1/orders/"+orderID, nil, 404)
	s.ask(t, rows[12][1], "GET", "/api/v1/admin/stats", nil, 403)

	t.Run("with a secret of one's own", func(t *testing.T) {
		env := map[string]string{"FLASHSALE_SECRET": strings.Repeat("x", 32)}
		code, stdout, _ := command(t, env, "tokens", "--users=1", database)
		if code != 0 {
			t.Fatalf("exit %d", code)
		}
		_, token, _ := strings.Cut(strings.TrimSpace(stdout), "u1,")
		s.ask(t, token, "GET", "/api/v1/orders", nil, 401) // the server has another
	})
	t.Run("that end soon", func(t *testing.T) {
		_, stdout, _ := command(t, nil, "tokens", "--users=1", "--ttl=1s", database)
		_, token, _ := strings.Cut(strings.TrimSpace(stdout), "u1,")
		within(t, "the token ends", func() bool {
			req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/api/v1/orders", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+token)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			return res.StatusCode == http.StatusUnauthorized
		})
	})
}

func TestMigrate(t *testing.T) {
	_, sqlite := sqliteFile(t)
	mysql := "--database=" + kit.SharedMariaDB(t).NewDatabase(t)
	for name, database := range map[string]string{"SQLite": sqlite, "MariaDB": mysql} {
		t.Run(name, func(t *testing.T) {
			steps := 0
			for _, step := range []struct {
				do               string
				applied, pending int // of the last step listed: 1 if so
			}{
				{"up", 1, 0}, {"up", 1, 0}, {"status", 1, 0}, {"down", 0, 1}, {"status", 0, 1}, {"down", 0, 1}, {"up", 1, 0},
			} {
				code, stdout, stderr := command(t, nil, "migrate", step.do, database)
				if code != 0 || stderr != "" {
					t.Fatalf("%s: exit %d, %s", step.do, code, stderr)
				}
				lines := strings.Split(strings.TrimSpace(stdout), "\n")
				if steps == 0 {
					steps = len(lines)
				}
				last := lines[len(lines)-1]
				if len(lines) != steps || strings.Count(last, " applied ") != step.applied || strings.Count(last, " pending ") != step.pending {
					t.Errorf("after %s: %q", step.do, stdout)
				}
				if !regexp.MustCompile(`^\d{5} (applied|pending) \d{5}_\w+\.sql$`).MatchString(last) {
					t.Errorf("line %q", last)
				}
			}
		})
	}
	t.Run("status of no file", func(t *testing.T) {
		path, database := sqliteFile(t)
		if code, _, stderr := command(t, nil, "migrate", "status", database); code != 2 || !strings.Contains(stderr, "--database") {
			t.Errorf("exit %d, %s", code, stderr)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("asking has made a database")
		}
	})
}

// audit says 0 while everything is accounted for, and 1 with what is wrong once a row was tampered with.
func TestAudit(t *testing.T) {
	path, database := sqliteFile(t)
	s := serve(t, nil, database)
	ann := s.ask(t, "", "POST", "/api/v1/users", map[string]any{"name": "Ann", "password": "correct horse"}, 201)["token"].(string)
	saleID, orderID := s.buy(t, ann)
	db := open(t, path)
	right := func(t *testing.T, args ...string) string {
		t.Helper()
		code, stdout, stderr := command(t, nil, append([]string{"audit", database}, args...)...)
		if code != 0 || stderr != "" || strings.Contains(stdout, "WRONG") {
			t.Errorf("exit %d, %q, %q", code, stdout, stderr)
		}
		return stdout
	}
	if said := right(t); !strings.Contains(said, saleID+": quota 100 = available 99 + held 1 + paid 0") {
		t.Errorf("while the server runs: %q", said)
	}
	right(t, "--sale="+saleID)
	if code, _, stderr := command(t, nil, "audit", database, "--sale=NOPE"); code != 1 || !strings.Contains(stderr, "NOPE") {
		t.Errorf("an absent sale: exit %d, %s", code, stderr)
	}
	if code := s.stop(); code != 0 {
		t.Fatalf("exit %d", code)
	}
	right(t)

	for name, tamper := range map[string]struct{ do, says string }{
		"a unit is made up":         {"UPDATE stock SET available = available + 1", "quota"},
		"a unit is gone":            {"UPDATE stock SET held = held - 1", "held"},
		"more paid than was paid":   {"UPDATE stock SET held = held - 1, paid = paid + 1", "paid"},
		"an order is cancelled":     {"UPDATE orders SET status = 'cancelled' WHERE id = '" + orderID + "'", "held"},
		"an order has another unit": {"UPDATE orders SET quantity = 2 WHERE id = '" + orderID + "'", "held"},
		"an order is gone":          {"DELETE FROM orders WHERE id = '" + orderID + "'", "held"},
		"a buyer has nothing":       {"UPDATE buyers SET units = 0", "buyers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copied := filepath.Join(t.TempDir(), "copy.db")
			if _, err := db.ExecContext(t.Context(), "VACUUM INTO ?", copied); err != nil {
				t.Fatal(err)
			}
			conn, err := open(t, copied).Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, statement := range []string{"PRAGMA ignore_check_constraints = ON", tamper.do} {
				if _, err := conn.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := command(t, nil, "audit", "--database=sqlite:"+copied)
			if code != 1 || !strings.Contains(stdout, "WRONG "+saleID) || !strings.Contains(stdout, tamper.says) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit %d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

// With Redis outside, audit holds the gate against the database too, and says what it drifts by.
func TestAuditOfTheGate(t *testing.T) {
	_, database := sqliteFile(t)
	outside := kit.Redis(t)
	settings := []string{database, "--redis=" + outside.URL(), "--secret=" + strings.Repeat("s", 32), "--admin-password=12345678", "--demo"}
	s := serve(t, nil, settings...)
	ann := s.ask(t, "", "POST", "/api/v1/users", map[string]any{"name": "Ann", "password": "correct horse"}, 201)["token"].(string)
	saleID, _ := s.buy(t, ann)
	if code := s.stop(); code != 0 {
		t.Fatalf("exit %d", code)
	}
	audit := append([]string{"audit"}, settings...)
	if code, stdout, stderr := command(t, nil, audit...); code != 0 || !strings.Contains(stdout, "left 99 + inflight 0, drift 0") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	options, err := redis.ParseURL(outside.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	if err := client.HIncrBy(t.Context(), "fs:{"+saleID+"}:gate", "left", 3).Err(); err != nil {
		t.Fatal(err)
	}
	if code, stdout, _ := command(t, nil, audit...); code != 1 || !strings.Contains(stdout, "WRONG "+saleID) || !strings.Contains(stdout, "drift 3") {
		t.Errorf("exit %d, %q", code, stdout)
	}
}

// Settings reach the server from a file, the environment and flags, each above the one before.
func TestServeTakesItsSettings(t *testing.T) {
	_, database := sqliteFile(t)
	file := filepath.Join(t.TempDir(), "flashsale.yaml")
	if err := os.WriteFile(file, []byte("public-url: https://file.example\nadmin-password: from the file\ndemo: false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, map[string]string{"FLASHSALE_ADMIN_PASSWORD": "from the environment", "FLASHSALE_CONFIG": file}, database, "--public-url=")
	admin := s.logIn(t, "admin", "from the environment")
	if sales, _ := s.ask(t, "", "GET", "/api/v1/sales", nil, 200)["sales"].([]any); len(sales) != 0 {
		t.Errorf("a demo sale although the file says no: %v", sales)
	}
	made := s.ask(t, admin, "POST", "/api/v1/admin/sales", map[string]any{
		"title": "T", "quota": 1, "starts_at": time.Now(), "ends_at": time.Now().Add(time.Hour),
	}, 201)
	if link, _ := made["short_url"].(string); !strings.HasPrefix(link, s.url+"/s/") {
		t.Errorf("short_url %s", link)
	}
}
