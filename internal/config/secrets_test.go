package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flashsale/test/kit/check"
)

// Files hold the same values as flags do. A line break at the end of a file is not part of the value.
func TestSecretFiles(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		check.Done(os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	secret := strings.Repeat("s ", 20)
	yaml := file("settings.yaml", "payment-secret-file: "+file("payment", "payment\r\n")+"\n")
	cmd, _, _, err := parse(map[string]string{"FLASHSALE_SECRET_FILE": file("secret", secret+"\n")},
		"audit", "--config="+yaml, "--admin-password-file="+file("admin", "admin"), "--queue-url-file="+file("queue", "amqp://u:p@h/v\n"),
		"--database=mysql://shop@db:3307/sales?tls=true", "--database-password-file="+file("database", "p@ss/w:or d?\n"),
		"--redis=a:1,b:2", "--redis-replicas=redis://reader@c:3", "--redis-password-file="+file("redis", "a,b@c"))
	check.Done(err)
	s := cmd.Settings
	check.Same(t, "values", []string{s.Secret, s.PaymentSecret, s.AdminPassword, s.QueueURL, s.Database, s.Redis, s.RedisReplicas}, []string{
		secret, "payment", "admin", "amqp://u:p@h/v", "mysql://shop:p%40ss%2Fw%3Aor%20d%3F@db:3307/sales?tls=true",
		":a%2Cb%40c@a:1,b:2", "redis://reader:a%2Cb%40c@c:3",
	})
	check.Done(s.ValidateStores())

	const hidden = "hunter2"
	for want, args := range map[string][]string{
		"--secret: is given":                {"--secret=" + hidden, "--secret-file=" + file("one", hidden)},
		"--secret-file: open":               {"--secret-file=" + filepath.Join(folder, "none")},
		"--admin-password-file: " + folder:  {"--admin-password-file=" + file("empty", "\n")},
		"--database-password: SQLite":       {"--database-password=" + hidden},
		"--database-password: --database":   {"--database=mysql://u:p@h/db", "--database-password=" + hidden},
		"--redis-password: the embedded":    {"--redis-password=" + hidden},
		"--redis-password: --redis has":     {"--redis=redis+sentinel://u:" + hidden + "@a:1/shop", "--redis-password=x"},
		"--redis-password: --redis-replica": {"--redis=redis://a:1", "--redis-replicas=redis://:p@a:2", "--redis-password=" + hidden},
	} {
		if _, _, _, err := parse(nil, args...); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), hidden) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestNear: connections to these stores stay on this machine, or do not.
func TestNear(t *testing.T) {
	for database, near := range map[string]bool{
		"sqlite:data/shop.db": true, "mysql://u:p@127.0.0.1/db": true, "mysql://u:p@[::1]:1/db": true, "mysql://u@/db?socket=/run/s": true,
		"mysql://u:p@LOCALHOST:3306/db": true, "mysql://u:p@10.0.0.1/db": false, "mysql://u:p@localhost.example/db": false,
	} {
		check.Same(t, database, settingsOf(t, "--database="+database).DatabaseIsNear(), near)
	}
	for redis, far := range map[string]string{
		"embedded": "", "redis://127.0.0.1:1": "", "redis://127.0.0.1:1,redis://b:2": "b:2", "rediss://b:2": "",
		"redis+sentinel://u:p@b:2,c:3/shop": "b:2", "rediss+sentinel://b:2/shop": "",
	} {
		check.Same(t, redis, settingsOf(t, "--redis="+redis).PlainRedis(), far)
	}
}
