package shop

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// Door is an nginx with the configuration of deploy/nginx.
type Door struct {
	URL    string
	Folder string
	Roots  *x509.CertPool // with TLS: what a client has to trust
}

// OpenDoor starts an nginx with one of the files for balancing, and the file with or without TLS. The files of deploy/nginx
// are used as they are, except for ports and paths of this machine. Clients at the address visitor may claim another one
// in a header. instances are lines of instances.conf.
func OpenDoor(t testing.TB, visitor, header, balance, front string, instances ...string) *Door {
	t.Helper()
	source := filepath.Join(Root(), "deploy", "nginx")
	d := &Door{URL: "http://"}
	server := kit.Nginx(t, func(folder string, port int) {
		d.Folder = folder
		link(t, source, filepath.Join(folder, "flashsale"))
		link(t, filepath.Join(source, balance), filepath.Join(folder, "balance.conf"))
		write(t, filepath.Join(folder, "instances.conf"), strings.Join(instances, "\n"))
		for _, name := range []string{"log", "cache", "tls"} {
			check.Error(t, name, os.MkdirAll(filepath.Join(folder, name), 0o700), nil)
		}
		write(t, filepath.Join(folder, "nginx.conf"), fill(t, filepath.Join(source, "nginx.conf"),
			"user www-data;", "user root;", // other users may not read the test's folder
			"pid /run/nginx.pid;", "pid nginx.pid;",
			"/var/log/nginx/error.log", "log/error.log",
			"/var/log/nginx/access.log", "log/access.log",
			"/var/cache/nginx/assets", "cache/assets",
			"/var/cache/nginx/draws", "cache/draws",
			"/var/cache/nginx/pages", "cache/pages",
			"http {", "http {\nclient_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; "+
				"scgi_temp_path scgi; uwsgi_temp_path uwsgi;\n"+
				"set_real_ip_from "+visitor+"; real_ip_header "+header+";",
		))
		// kit.Nginx gives one port. With TLS, that port is the one for TLS, and the other one becomes a socket.
		listen := []string{"listen [::]:80 default_server backlog=4096;", ""}
		address := fmt.Sprintf("listen 127.0.0.1:%d ", port)
		if front == "tls.conf" {
			d.URL = "https://"
			d.Roots = kit.Certificate(t, filepath.Join(folder, "tls"))
			listen = append(listen, "listen 80 ", "listen unix:"+d.Socket()+" ",
				"listen [::]:443 ssl http2 default_server backlog=4096;", "", "listen 443 ", address)
		} else {
			listen = append(listen, "listen 80 ", address)
		}
		write(t, filepath.Join(folder, "front.conf"), fill(t, filepath.Join(source, front), listen...))
	})
	d.URL += server.Addr()
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(d.Folder, "log", "error.log"))
			t.Logf("nginx: %.4000s", log)
		}
	})
	return d
}

// Socket is the address without TLS of a door with TLS.
func (d *Door) Socket() string { return filepath.Join(d.Folder, "plain.sock") }

// fill reads a configuration and replaces texts. Each text must occur once; otherwise the test has to be updated.
func fill(t testing.TB, path string, replacements ...string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	check.Error(t, "read "+path, err, nil)
	text := string(raw)
	for i := 0; i < len(replacements); i += 2 {
		if n := strings.Count(text, replacements[i]); n != 1 {
			t.Errorf("%s: %q occurs %d times", path, replacements[i], n)
		}
		text = strings.Replace(text, replacements[i], replacements[i+1], 1)
	}
	return text
}

func write(t testing.TB, path, text string) {
	t.Helper()
	check.Error(t, "write "+path, os.WriteFile(path, []byte(text), 0o600), nil)
}

func link(t testing.TB, to, from string) {
	t.Helper()
	if err := os.Symlink(to, from); err != nil && !errors.Is(err, fs.ErrExist) { // from the first port that was tried
		t.Error(err)
	}
}
