package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
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

	"github.com/redis/go-redis/v9"

	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

func TestMain(m *testing.M) { kit.Main(m) }

const patience = time.Minute

type fields = map[string]any

// noError ends the test if there is an error.
func noError(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

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

// find waits for a text that matches a pattern, and returns the pattern's first group.
func (c *console) find(t testing.TB, pattern string) string {
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

// execute runs a command to its end.
func execute(t testing.TB, env map[string]string, args ...string) (code int, stdout, stderr string) {
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
	end            func() (code int) // as SIGTERM does
}

// serve starts the server with these arguments, on a free port.
func serve(t testing.TB, env map[string]string, args ...string) *serving {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &serving{stdout: newConsole(), stderr: newConsole()}
	ended := make(chan int, 1)
	args = append(args, "--http-addr=127.0.0.1:0", "--ops-addr=off", "--log-level=error", "--ack-wait=10s")
	go func() { ended <- run(ctx, args, func(name string) string { return env[name] }, s.stdout, s.stderr) }()
	s.end = sync.OnceValue(func() int {
		began := time.Now()
		cancel()
		code := check.Receive(t, "the server's end", ended)
		if took := time.Since(began); took > 10*time.Second {
			pace.Errorf(t, "the server stopped after %s", took)
		}
		return code
	})
	t.Cleanup(func() { s.end() })
	s.url = s.stdout.find(t, `is at (http://127\.0\.0\.1:\d+)\n`)
	return s
}

// stop ends the server, which must exit with 0.
func (s *serving) stop(t testing.TB) {
	t.Helper()
	if code := s.end(); code != 0 {
		t.Fatalf("exit %d, %s", code, s.stderr)
	}
}

// send sends a request and returns the answer's status and body.
func (s *serving) send(t testing.TB, token, method, path string, body any) (status int, answer []byte) {
	t.Helper()
	text, err := json.Marshal(body)
	noError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, bytes.NewReader(text))
	noError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		pace.Errorf(t, "%s %s: %v", method, path, err)
		return 0, nil
	}
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, answer
}

// ask sends a request and decodes its answer, which must have this status.
func (s *serving) ask(t testing.TB, token, method, path string, body any, want int) (doc fields) {
	t.Helper()
	status, answer := s.send(t, token, method, path, body)
	if status != want {
		t.Fatalf("%s %s: %d %s, want %d", method, path, status, answer, want)
	}
	if err := json.Unmarshal(answer, &doc); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, answer)
	}
	return doc
}

// register makes the account of Ann and returns her token.
func (s *serving) register(t testing.TB) string {
	t.Helper()
	return s.ask(t, "", "POST", "/api/v1/users", fields{"name": "Ann", "password": "correct horse"}, 201)["token"].(string)
}

func (s *serving) logIn(t testing.TB, name, password string) string {
	t.Helper()
	return s.ask(t, "", "POST", "/api/v1/sessions", fields{"name": name, "password": password}, 200)["token"].(string)
}

// orderURL returns the URL of a purchase in the only sale.
func (s *serving) orderURL(t testing.TB, token string) string {
	t.Helper()
	sales := s.ask(t, "", "GET", "/api/v1/sales", nil, 200)["sales"].([]any)
	saleURL := "/api/v1/sales/" + sales[0].(fields)["id"].(string)
	return saleURL + "/" + s.ask(t, token, "POST", saleURL+"/path", nil, 200)["path"].(string) + "/orders"
}

// buy buys a unit of the only sale.
func (s *serving) buy(t testing.TB, token string) (saleID, orderID string) {
	t.Helper()
	order := s.ask(t, token, "POST", s.orderURL(t, token), fields{"quantity": 1}, 201)
	return order["sale_id"].(string), order["id"].(string)
}

// audit asks for a sale's books.
func (s *serving) audit(t testing.TB, operator, saleID string) fields {
	t.Helper()
	return s.ask(t, operator, "GET", "/api/v1/admin/sales/"+saleID+"/audit", nil, 200)
}

func within(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func sqliteFile(t testing.TB) (path, flag string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "data", "flashsale.db")
	return path, "--database=sqlite:" + path
}

func TestExitCodes(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	noError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	mariadb := kit.MariaDB(t)
	away := "--database=" + mariadb.NewDatabase(t)
	mariadb.Kill()
	outside := []string{away, "--redis=redis://127.0.0.1:1/0", "--secret=" + strings.Repeat("s", 32), "--admin-password=12345678", "--payment=sandbox"}
	_, fresh := sqliteFile(t)
	file := filepath.Join(t.TempDir(), "file")
	noError(t, os.WriteFile(file, []byte("no database"), 0o600))
	notSQLite, noFolder := "--database=sqlite:"+file, "--database=sqlite:"+file+"/below/x.db"
	free, noOps, bound := "--http-addr=127.0.0.1:0", "--ops-addr=off", taken.Addr().String()
	for name, tc := range map[string]struct {
		args   []string
		code   int
		stdout string // a pattern; empty: nothing is printed
		stderr string
	}{
		"version":              {[]string{"version"}, 0, `^flashsale 0\.1\.0\n$`, ""},
		"help":                 {[]string{"--help"}, 0, `--http-addr`, ""},
		"help of a command":    {[]string{"tokens", "--help"}, 0, `--users`, ""},
		"an unknown command":   {[]string{"sell"}, 2, "", `sell`},
		"an unknown flag":      {[]string{"--colour=red"}, 2, "", `--colour`},
		"a bad setting":        {[]string{"--ack-wait=1h"}, 2, "", `--ack-wait`},
		"a missing file":       {[]string{"--config=/nowhere/at.all"}, 2, "", `--config`},
		"no secret":            {[]string{"--redis=redis://127.0.0.1:1/0", fresh}, 2, "", `--secret`},
		"no users":             {[]string{"tokens"}, 2, "", `--users`},
		"a negative number":    {[]string{"tokens", "--users=-1"}, 2, "", `--users`},
		"too many users":       {[]string{"tokens", "--users=10000001"}, 2, "", `--users`},
		"a bad prefix":         {[]string{"tokens", "--users=1", "--prefix=a b"}, 2, "", `--prefix`},
		"a long prefix":        {[]string{"tokens", "--users=100", "--prefix=" + strings.Repeat("x", 62)}, 2, "", `--prefix`},
		"no lifetime":          {[]string{"tokens", "--users=1", "--ttl=0s"}, 2, "", `--ttl`},
		"a bad store, audit":   {[]string{"audit", "--redis=nowhere"}, 2, "", `--redis`},
		"a bad store, migrate": {[]string{"migrate", "up", "--database=nowhere"}, 2, "", `--database`},
		"no database, serve":   {outside, 1, "", `database`},
		"no database, migrate": {append([]string{"migrate", "up"}, outside...), 1, "", `database`},
		"no database, audit":   {append([]string{"audit"}, outside...), 1, "", `database`},
		"no SQLite file":       {[]string{notSQLite, free, noOps}, 1, "", `database`},
		"no folder":            {[]string{noFolder, free, noOps}, 1, "", `database`},
		"a taken port":         {[]string{fresh, noOps, "--http-addr=" + bound}, 1, "", `--http-addr`},
		"a taken ops port":     {[]string{fresh, free, "--ops-addr=" + bound}, 1, "", `--ops-addr`},
	} {
		t.Run(name, func(t *testing.T) { exits(t, nil, tc.args, tc.code, tc.stdout, tc.stderr) })
	}
	t.Run("a bad variable", func(t *testing.T) {
		exits(t, map[string]string{"FLASHSALE_LIMIT_RATE": "0"}, nil, 2, "", `--limit-rate`)
	})
}

// exits checks a command's exit code and what it prints. An error is one line.
func exits(t testing.TB, env map[string]string, args []string, wantCode int, wantStdout, wantStderr string) {
	t.Helper()
	code, stdout, stderr := execute(t, env, args...)
	if code != wantCode {
		t.Errorf("exit %d, want %d", code, wantCode)
	}
	for _, printed := range [][2]string{{stdout, wantStdout}, {stderr, wantStderr}} {
		if text, want := printed[0], printed[1]; (want == "") != (text == "") || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("printed %q, want %q", text, want)
		}
	}
	if stderr != "" && (strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "flashsale: ") ||
		strings.Contains(stderr, "goroutine")) {
		t.Errorf("stderr is not one line of the program: %q", stderr)
	}
}

// The first start makes everything and prints the operator's password. The second start finds everything.
func TestServeTwice(t *testing.T) {
	pace.Try(t, func(t *pace.Trial) {
		path, database := sqliteFile(t)
		first := serve(t, nil, database)
		password := first.stdout.find(t, `password (\S+)`)
		admin := first.logIn(t, "admin", password)
		first.ask(t, admin, "GET", "/api/v1/admin/stats", nil, 200)
		page := first.stdout.find(t, `next: open http://127\.0\.0\.1:\d+(/sales/\S+),`)
		if status, _ := first.send(t, "", "GET", page, nil); status != http.StatusOK {
			t.Errorf("the printed page answers %d", status)
		}
		ann := first.register(t)
		saleID, orderID := first.buy(t, ann)
		first.stop(t)
		if first.stderr.String() != "" {
			t.Slowf("errors were logged: %s", first.stderr)
		}
		secret, err := os.Stat(strings.TrimSuffix(path, ".db") + ".secret")
		if err != nil || secret.Mode().Perm() != 0o600 {
			t.Errorf("the kept secret: %v, %v", secret, err)
		}

		second := serve(t, nil, database)
		if order := second.ask(t, ann, "GET", "/api/v1/orders/"+orderID, nil, 200); order["status"] != "pending" ||
			order["sale_id"] != saleID {
			t.Errorf("the order of before: %v", order)
		}
		ann = second.logIn(t, "Ann", "correct horse")
		if again, _ := second.buy(t, ann); again != saleID {
			t.Errorf("the second start made the sale %s beside %s", again, saleID)
		}
		second.ask(t, ann, "POST", "/api/v1/orders/"+orderID+"/payments", nil, 201)
		operator := second.logIn(t, "admin", password)
		// An order that the database took while the gate came back is unknown to the gate until the auditor has looked.
		within(t, "the books agree with the gate", func() bool {
			books := second.audit(t, operator, saleID)
			return books["ok"] == true && books["held"] == 2.0
		})
		second.stop(t)
		if strings.Contains(second.stdout.String(), "password") {
			t.Errorf("the password was printed again: %s", second.stdout)
		}

		// A given password replaces the generated one, and is not printed.
		third := serve(t, map[string]string{"FLASHSALE_ADMIN_PASSWORD": "another horse"}, database)
		third.logIn(t, "admin", "another horse")
		third.ask(t, "", "POST", "/api/v1/sessions", fields{"name": "admin", "password": password}, 401)
		if printed := third.stdout.String() + third.stderr.String(); strings.Contains(printed, "password") ||
			strings.Contains(printed, "another horse") {
			t.Errorf("printed %s", printed)
		}
	})
}

// A stop finishes running requests: a buyer who waits for an order gets an answer, and the order exists.
func TestStopFinishesWhatRuns(t *testing.T) {
	pace.Try(t, func(t *pace.Trial) {
		path, database := sqliteFile(t)
		s := serve(t, nil, database)
		ann := s.register(t)
		saleID, _ := s.buy(t, ann)
		url, operator := s.orderURL(t, ann), s.logIn(t, "admin", s.stdout.find(t, `password (\S+)`))

		db := kit.OpenSQL(t, "sqlite:"+path)
		conn, err := db.Conn(t.Context()) // which keeps others from writing
		noError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
		noError(t, err)
		answered, code := make(chan int, 1), make(chan int, 1)
		go func() {
			status, _ := s.send(t, ann, "POST", url, fields{"quantity": 1})
			answered <- status
		}()
		within(t, "the attempt is queued", func() bool {
			sale := s.ask(t, ann, "GET", "/api/v1/sales/"+saleID, nil, 200)
			return sale["available"] == 99.0 && s.audit(t, operator, saleID)["gate"].(fields)["inflight"] == 1.0
		})
		go func() { code <- s.end() }()
		if status := <-answered; status != 0 && status != http.StatusCreated && status != http.StatusAccepted {
			t.Errorf("the buyer who waited got %d", status)
		}
		_, err = conn.ExecContext(t.Context(), "ROLLBACK")
		noError(t, err)
		if got := <-code; got != 0 {
			t.Errorf("exit %d, %s", got, s.stderr)
		}
		var orders, held int
		row := db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM orders), (SELECT held FROM stock)")
		noError(t, row.Scan(&orders, &held))
		if orders != 2 || held != 2 { // the stop leaves attempts to other instances that are not settled in time
			t.Slowf("%d orders, %d units held", orders, held)
		}
	})
}

// A kept secret that is too short is refused: everybody could guess an empty one.
func TestKeptSecretThatIsTooShort(t *testing.T) {
	for _, kept := range []string{"", "\n", "abc\n"} {
		path, database := sqliteFile(t)
		noError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		noError(t, os.WriteFile(strings.TrimSuffix(path, ".db")+".secret", []byte(kept), 0o600))
		code, stdout, stderr := execute(t, nil, database, "--http-addr=127.0.0.1:0", "--ops-addr=off", "--log-level=error")
		if code != 1 || !strings.Contains(stderr, ".secret") {
			t.Errorf("with the secret %q: exit %d, printed %q %q", kept, code, stdout, stderr)
		}
	}
}

// The server accepts the tokens that the command prints.
func TestTokens(t *testing.T) {
	_, database := sqliteFile(t)
	if code, stdout, stderr := execute(t, nil, "tokens", "--users=1", database); code != 1 || stdout != "" ||
		!strings.Contains(stderr, "--secret") {
		t.Errorf("before there is a server: exit %d, %q, %q", code, stdout, stderr)
	}
	s := serve(t, nil, database)
	tokens := func(env map[string]string, args ...string) [][]string {
		t.Helper()
		code, stdout, stderr := execute(t, env, append([]string{"tokens", database}, args...)...)
		rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
		if code != 0 || stderr != "" || err != nil || strings.Join(rows[0], ",") != "user_id,token" {
			t.Fatalf("exit %d, %s, %v in %q", code, stderr, err, stdout)
		}
		return rows[1:]
	}
	rows := tokens(nil, "--users=12", "--prefix=load-", "--ttl=1h")
	for i, row := range rows {
		if want := fmt.Sprint("load-", i+1); row[0] != want {
			t.Errorf("row %d is of %s, want %s", i+1, row[0], want)
		}
	}
	_, orderID := s.buy(t, rows[0][1])
	s.ask(t, rows[0][1], "GET", "/api/v1/orders/"+orderID, nil, 200)
	s.ask(t, rows[1][1], "GET", "/api/v1/orders/"+orderID, nil, 404)
	s.ask(t, rows[11][1], "GET", "/api/v1/admin/stats", nil, 403)

	other := tokens(map[string]string{"FLASHSALE_SECRET": strings.Repeat("x", 32)}, "--users=1") // of another secret
	s.ask(t, other[0][1], "GET", "/api/v1/orders", nil, 401)
	short := tokens(nil, "--users=1", "--ttl=1s")
	within(t, "the token ends", func() bool {
		status, _ := s.send(t, short[0][1], "GET", "/api/v1/orders", nil)
		return status == http.StatusUnauthorized
	})
}

func TestMigrate(t *testing.T) {
	_, sqlite := sqliteFile(t)
	line := regexp.MustCompile(`^\d{5} (applied|pending) \d{5}_\w+\.sql$`)
	for name, database := range map[string]string{"SQLite": sqlite, "MariaDB": "--database=" + kit.SharedMariaDB(t).NewDatabase(t)} {
		t.Run(name, func(t *testing.T) {
			steps := 0
			for _, step := range [][2]string{ // the state of the last migration after a command
				{"up", "applied"},
				{"up", "applied"},
				{"status", "applied"},
				{"down", "pending"},
				{"status", "pending"},
				{"down", "pending"},
				{"up", "applied"},
			} {
				code, stdout, stderr := execute(t, nil, "migrate", step[0], database)
				lines := strings.Split(strings.TrimSpace(stdout), "\n")
				if steps == 0 {
					steps = len(lines)
				}
				state := line.FindStringSubmatch(lines[len(lines)-1])
				if code != 0 || stderr != "" || len(lines) != steps || state == nil || state[1] != step[1] {
					t.Fatalf("after %s: exit %d, %q, %q, want %s", step[0], code, stdout, stderr, step[1])
				}
			}
		})
	}
	path, absent := sqliteFile(t)
	if code, _, stderr := execute(t, nil, "migrate", "status", absent); code != 2 || !strings.Contains(stderr, "--database") {
		t.Errorf("without a file: exit %d, %s", code, stderr)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the status of an absent database has made the database")
	}
}

// Before the first start, the commands that need the schema say what to do, and change nothing.
func TestBeforeTheSchema(t *testing.T) {
	path, sqlite := sqliteFile(t)
	noError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	noError(t, os.WriteFile(path, nil, 0o600))
	shape := filepath.Join(t.TempDir(), "shape.yaml")
	noError(t, os.WriteFile(shape, []byte("arrivals: spike\nbuyers: 1\nunits: 1\nlasts: 1s\n"), 0o600))
	outside := "--database=" + kit.SharedMariaDB(t).NewDatabase(t)
	for name, database := range map[string][]string{"SQLite": {sqlite}, "MariaDB": {outside, "--redis=redis://127.0.0.1:1"}} {
		for _, command := range [][]string{
			{"keys", "create", "--name=shop"},
			{"keys", "list"},
			{"keys", "revoke", "--name=shop"},
			{"audit"},
			{"rehearse", "--url=http://127.0.0.1:1", "--shape=" + shape, "--out=" + t.TempDir(), "--secret=" + strings.Repeat("secret ", 5)},
			{"preflight"},
		} {
			t.Run(name+", "+command[0], func(t *testing.T) {
				code, stdout, stderr := execute(t, nil, append(command, database...)...)
				if code != 1 || !strings.Contains(stdout+stderr, "migrate up") || strings.Contains(stdout+stderr, "no such table") || strings.Contains(stdout+stderr, "1146") {
					t.Errorf("%v: exit %d, %s%s", command, code, stdout, stderr)
				}
			})
		}
		_, stdout, _ := execute(t, nil, "migrate", "status", database[0])
		if strings.Contains(stdout, "applied") {
			t.Errorf("%s: %s", name, stdout)
		}
	}
}

// audit exits with 0 while the books are right, and with 1 after a row was changed.
func TestAudit(t *testing.T) {
	path, database := sqliteFile(t)
	s := serve(t, nil, database)
	saleID, orderID := s.buy(t, s.register(t))
	right := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := execute(t, nil, append([]string{"audit", database}, args...)...)
		if code != 0 || stderr != "" || strings.Contains(stdout, "WRONG") {
			t.Errorf("exit %d, %q, %q", code, stdout, stderr)
		}
		return stdout
	}
	if said := right(); !strings.Contains(said, saleID+": quota 100 = available 99 + held 1 + paid 0") {
		t.Errorf("while the server runs: %q", said)
	}
	right("--sale=" + saleID)
	if code, _, stderr := execute(t, nil, "audit", database, "--sale=NOPE"); code != 1 || !strings.Contains(stderr, "NOPE") {
		t.Errorf("an absent sale: exit %d, %s", code, stderr)
	}
	s.stop(t)
	right()

	db := kit.OpenSQL(t, "sqlite:"+path)
	order := " WHERE id = '" + orderID + "'"
	for change, says := range map[string]string{
		"UPDATE stock SET available = available + 1":        "quota",
		"UPDATE stock SET held = held - 1":                  "held",
		"UPDATE stock SET held = held - 1, paid = paid + 1": "paid",
		"UPDATE orders SET status = 'cancelled'" + order:    "held",
		"UPDATE orders SET quantity = 2" + order:            "held",
		"DELETE FROM orders" + order:                        "held",
		"UPDATE buyers SET units = 0":                       "buyers",
	} {
		copied := "sqlite:" + filepath.Join(t.TempDir(), "copy.db")
		_, err := db.ExecContext(t.Context(), "VACUUM INTO ?", strings.TrimPrefix(copied, "sqlite:"))
		noError(t, err)
		conn, err := kit.OpenSQL(t, copied).Conn(t.Context())
		noError(t, err)
		for _, statement := range []string{"PRAGMA ignore_check_constraints = ON", change} {
			_, err := conn.ExecContext(t.Context(), statement)
			noError(t, err)
		}
		noError(t, conn.Close())
		code, stdout, stderr := execute(t, nil, "audit", "--database="+copied)
		if code != 1 || !strings.Contains(stdout, "WRONG "+saleID) || !strings.Contains(stdout, says) ||
			strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, %q", change, code, stdout, stderr)
		}
	}
}

// With Redis outside, audit also compares the gate with the database, and prints the drift.
func TestAuditOfTheGate(t *testing.T) {
	_, database := sqliteFile(t)
	outside := kit.Redis(t)
	settings := []string{
		database, "--redis=" + outside.URL(), "--secret=" + strings.Repeat("s", 32), "--admin-password=12345678",
		"--demo", "--accounts=open", "--payment=sandbox",
	}
	s := serve(t, nil, settings...)
	saleID, _ := s.buy(t, s.register(t))
	operator := s.logIn(t, "admin", "12345678")
	within(t, "the books agree with the gate", func() bool { return s.audit(t, operator, saleID)["ok"] == true })
	s.ask(t, operator, "POST", "/api/v1/admin/campaigns", fields{ // whose id is among those of the sales
		"title": "shoe", "starts_at": time.Now(), "ends_at": time.Now().Add(time.Hour), "sales": []fields{{"variant": "41", "quota": 1, "price_cents": 1}},
	}, 201)
	s.stop(t)
	audit := append([]string{"audit"}, settings...)
	if code, stdout, stderr := execute(t, nil, audit...); code != 0 || !strings.Contains(stdout, "left 99 + inflight 0, drift 0") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	client := redis.NewClient(&redis.Options{Addr: outside.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	noError(t, client.HIncrBy(t.Context(), "fs:{"+saleID+"}:gate", "left", 3).Err())
	if code, stdout, _ := execute(t, nil, audit...); code != 1 || !strings.Contains(stdout, "WRONG "+saleID) ||
		!strings.Contains(stdout, "drift 3") {
		t.Errorf("exit %d, %q", code, stdout)
	}
}
