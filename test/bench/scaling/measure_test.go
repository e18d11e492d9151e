//go:build bench && linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/service/auth"
	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

func TestMain(m *testing.M) { shop.Main(m) }

const (
	crowd      = 100
	measured   = 3 * time.Second
	warm       = 500 * time.Millisecond
	tickSecond = 100 // clock ticks per second in /proc, the same on every Linux
	plenty     = 10_000_000
)

// TestMeasure prints what each kind of request costs: CPU time of each process, and bytes on the wire. CPU time is also
// valid on a machine that is busy with other work, although that work affects the caches: compare figures of one run
// only.
//
//	go test -tags bench -run TestMeasure -v ./test/bench/scaling
func TestMeasure(t *testing.T) {
	redisServer := kit.Redis(t)
	mariadb := kit.SharedMariaDB(t)
	s := shop.On(t, mariadb.NewDatabase(t), redisServer)
	instance := s.Start()
	client := redis.NewClient(&redis.Options{Addr: redisServer.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	tokens := auth.NewTokens([]byte(shop.Secret), time.Now)
	paths := auth.NewPaths([]byte(shop.Secret), time.Now)
	open, gone := s.Sale(instance.URL, plenty), s.Sale(instance.URL, 1)
	if a := s.Rush(gone, "first", 2, nil, instance.URL); shop.Tally(a)["409 sold_out"] != 1 {
		t.Fatalf("%v", shop.Tally(a))
	}
	page := instance.URL + "/sales/" + open
	order := func(saleID string, keyed bool) func(n int64) *http.Request {
		return func(n int64) *http.Request {
			user := "measured-" + strconv.FormatInt(n, 10)
			path, _ := paths.Issue(user, saleID, time.Hour)
			req := request(t, "POST", instance.URL+"/api/v1/sales/"+saleID+"/"+path+"/orders", tokens, user, `{"quantity":1}`)
			if keyed {
				req.Header.Set("Idempotency-Key", fmt.Sprintf("%032d", n))
			}
			return req
		}
	}
	var asked atomic.Int64
	for _, m := range []struct {
		name   string
		make   func(n int64) *http.Request
		status int
	}{
		{"path", func(n int64) *http.Request {
			return request(t, "POST", instance.URL+"/api/v1/sales/"+open+"/path", tokens, "measured-"+strconv.FormatInt(n, 10), "")
		}, http.StatusOK},
		{"accepted, confirmed, with a key", order(open, true), http.StatusCreated},
		{"sold out, without a key", order(gone, false), http.StatusConflict},
		{"sold out, with a key", order(gone, true), http.StatusConflict},
		{"page of the sale", func(int64) *http.Request { return request(t, "GET", page, nil, "", "") }, http.StatusOK},
		{"sale as JSON", func(int64) *http.Request {
			return request(t, "GET", instance.URL+"/api/v1/sales/"+open, nil, "", "")
		}, http.StatusOK},
	} {
		run := func(d time.Duration) (requests, in, out int64) {
			return storm(t, d, func() *http.Request { return m.make(asked.Add(1)) }, m.status)
		}
		run(warm)
		before := [3]float64{cpu(t, instance.PID()), cpu(t, mariadb.PID()), redisCPU(t, client)}
		start := time.Now()
		requests, in, out := run(measured)
		took := time.Since(start).Seconds()
		after := [3]float64{cpu(t, instance.PID()), cpu(t, mariadb.PID()), redisCPU(t, client)}
		var us [3]float64
		for i := range us {
			us[i] = (after[i] - before[i]) / float64(requests) * 1e6
		}
		t.Logf("%-32s %7.0f/s  CPU in µs: engine %5.1f, MariaDB %5.1f, Redis %5.1f  bytes: %d up, %d down",
			m.name, float64(requests)/took, us[0], us[1], us[2], out/requests, in/requests)
	}
}

func request(t *testing.T, method, url string, tokens *auth.Tokens, user, body string) *http.Request {
	req, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if tokens != nil {
		token, _, err := tokens.Sign(model.Identity{UserID: user, Role: model.RoleBuyer}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req
}

// storm sends requests over crowd connections for the time d. It returns the number of answers and of bytes read and
// written.
func storm(t *testing.T, d time.Duration, next func() *http.Request, status int) (requests, in, out int64) {
	t.Helper()
	var read, written, answers atomic.Int64
	transport := &http.Transport{
		MaxIdleConnsPerHost: crowd, DisableCompression: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return &counted{conn, &read, &written}, err
		},
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var workers sync.WaitGroup
	for range crowd {
		workers.Go(func() {
			for ctx.Err() == nil {
				res, err := client.Do(next())
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if res.StatusCode != status {
					t.Errorf("status %d, want %d", res.StatusCode, status)
					return
				}
				answers.Add(1)
			}
		})
	}
	workers.Wait()
	return answers.Load(), read.Load(), written.Load()
}

// counted is a connection that counts its bytes.
type counted struct {
	net.Conn
	read, written *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// cpu returns the seconds of CPU time that a process has used.
func cpu(t *testing.T, pid int) float64 {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // begins with field 3 of proc(5)
	ticks := 0.0
	for _, field := range fields[11:13] {
		n, err := strconv.ParseFloat(string(field), 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return ticks / tickSecond
}

func redisCPU(t *testing.T, client *redis.Client) (seconds float64) {
	t.Helper()
	info, err := client.Info(t.Context(), "cpu").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^used_cpu_(?:sys|user):([\d.]+)`).FindAllStringSubmatch(info, -1) {
		n, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		seconds += n
	}
	return seconds
}
