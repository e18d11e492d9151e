package e2e

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

// readers returns the paths of the OpenAPI document that can be read by GET, and whether each one is a stream, and public.
func readers(t *testing.T) (paths map[string]struct{ stream, public bool }) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]any
	}
	check.NoError(t, yaml.Unmarshal(check.Must(os.ReadFile(filepath.Join(shop.Root(), "web", "openapi.yaml"))), &doc))
	paths = map[string]struct{ stream, public bool }{}
	for path, operations := range doc.Paths {
		if operation, ok := operations["get"].(map[string]any); ok {
			raw := string(check.Must(yaml.Marshal(operation)))
			_, secured := operation["security"]
			paths[path] = struct{ stream, public bool }{strings.Contains(raw, "text/event-stream"), !secured}
		}
	}
	return paths
}

// Each public path answers through nginx as the instance itself does, and what the instance lets anybody keep is in nginx's
// cache.
func TestNginxKnowsEveryPath(t *testing.T) {
	s := shop.New(t)
	instance := s.Start("--trusted-proxies", "127.0.0.1", "--allow-origin", shopOrigin)
	d := openDoor(t, line(instance.URL, ""))
	sale := s.SaleWith(instance.URL, shop.SaleOf(shop.Document{"mode": "draw"}))
	campaign := s.Must(http.StatusCreated, http.MethodPost, instance.URL+"/api/v1/admin/campaigns", s.Operator(instance.URL), shop.Document{
		"title": "shoe", "starts_at": time.Now().Add(-time.Minute), "ends_at": time.Now().Add(time.Hour), "limit_per_user": 1, "pay_timeout_seconds": 600,
		"sales": []shop.Document{{"variant": "41", "price_cents": 990, "quota": 5}, {"variant": "42", "price_cents": 990, "quota": 5}},
	})
	link, _ := s.Must(http.StatusOK, http.MethodGet, instance.URL+"/api/v1/sales/"+sale, "", nil)["short_url"].(string)
	id, _ := campaign["id"].(string)
	fill := strings.NewReplacer("{sale}", sale, "{campaign}", id, "{code}", link[strings.LastIndex(link, "/")+1:])
	direct, through := from(t, "127.0.0.1"), from(t, shop.Address(1))
	streams, kept, public := 0, 0, map[string]bool{} // by the id of the request
	for path, is := range readers(t) {
		path = fill.Replace(path)
		switch {
		case !is.public || strings.Contains(path, "{") || path == "/healthz" || path == "/readyz":
		case is.stream:
			streams++
			req := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, d.URL+path, nil))
			res, err := http.DefaultClient.Do(req)
			check.NoError(t, err)
			first, err := bufio.NewReader(res.Body).ReadString('\n')
			check.NoError(t, err)
			check.NoError(t, res.Body.Close())
			if res.Header.Get("Content-Type") != "text/event-stream" || first == "" {
				t.Errorf("%s: %v %q", path, res.Header, first)
			}
		default:
			own := direct.get(instance.URL + path)
			asked := "path" + strings.NewReplacer("/", "-", ".", "-").Replace(path) + "."
			got := through.get(d.URL+path, "X-Request-Id", asked)
			check.Same(t, path+": status", got.status, own.status)
			for _, name := range []string{"Content-Type", "Content-Language", "Content-Security-Policy", "Access-Control-Allow-Origin"} {
				check.Same(t, path+": "+name, got.header.Get(name), own.header.Get(name))
			}
			if own.status != http.StatusOK { // what becomes of it depends on the refusal
				continue
			}
			if public[asked] = strings.HasPrefix(own.header.Get("Cache-Control"), "public"); public[asked] {
				kept++
			}
		}
	}
	for asked, is := range public {
		l := d.log(t, asked, 1)[0]
		check.Same(t, l.Path+" is in the cache", l.Cache != "", is)
	}
	if streams < 2 || kept < 8 {
		t.Errorf("%d streams and %d cached paths", streams, kept)
	}
	large := through.post(d.URL+"/api/v1/payments/notices", strings.Repeat(" ", 200<<10))
	check.Same(t, "a notice of 200 KiB is too large", large.status == http.StatusRequestEntityTooLarge, false)
	// Requests that nginx itself does not understand.
	for _, raw := range []string{"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "nonsense\r\n\r\n", "GET /" + strings.Repeat("x", 1<<16)} {
		answer := sent(t, d, raw)
		if !strings.HasPrefix(answer, "HTTP/1.1 4") {
			t.Errorf("%.40q: %.200q", raw, answer)
		}
	}
	log := string(check.Must(os.ReadFile(filepath.Join(d.Folder, "log", "error.log"))))
	if strings.Contains(log, "uninitialized") || strings.Contains(log, "[crit]") || strings.Contains(log, "[emerg]") {
		t.Errorf("the log of nginx has %.2000s", log)
	}
}

// sent sends bytes to nginx, and returns the first line of its answer.
func sent(t *testing.T, d *door, raw string) string {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(shop.Address(2))}}
	conn := check.Must(dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(d.URL, "http://")))
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(raw)); err != nil {
		t.Errorf("%.40q: %v", raw, err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Errorf("%.40q: %v", raw, err)
	}
	return answer
}

var location = regexp.MustCompile(`(?s)\nlocation ~ "?(\^\S+?)"? \{(.*?)\n\}`)

// nginx passes on each stream as it comes, for as long as it lasts.
func TestNginxStreamsEveryStream(t *testing.T) {
	locations := location.FindAllStringSubmatch(string(check.Must(os.ReadFile(filepath.Join(shop.Root(), "deploy", "nginx", "server.conf")))), -1)
	for path, is := range readers(t) {
		path = regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(path, "X")
		streams := false
		for _, l := range locations {
			if regexp.MustCompile(l[1]).MatchString(path) { // nginx takes the first one that matches
				streams = strings.Contains(l[2], "proxy_buffering off;") && strings.Contains(l[2], "proxy_read_timeout 1h;")
				break
			}
		}
		check.Same(t, path+" is passed on as a stream", streams, is.stream)
	}
}
