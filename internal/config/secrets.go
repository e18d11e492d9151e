package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// secretFiles are the flags that name files with secrets.
type secretFiles struct {
	SecretFile              string `placeholder:"FILE" help:"File with the value of --secret."`
	PaymentSecretFile       string `placeholder:"FILE" help:"File with the value of --payment-secret."`
	AdminPasswordFile       string `placeholder:"FILE" help:"File with the value of --admin-password."`
	DatabasePasswordFile    string `placeholder:"FILE" help:"File with the value of --database-password."`
	RedisPasswordFile       string `placeholder:"FILE" help:"File with the value of --redis-password."`
	ClientSecretFile        string `placeholder:"FILE" help:"File with the value of --client-secret."`
	StripeKeyFile           string `placeholder:"FILE" help:"File with the value of --stripe-key."`
	StripeWebhookSecretFile string `placeholder:"FILE" help:"File with the value of --stripe-webhook-secret."`
	QueueURLFile            string `name:"queue-url-file" placeholder:"FILE" help:"File with the value of --queue-url."`
}

// readSecrets sets the settings whose files are given. The name of a file's flag is that of its setting, followed by -file.
// readSecrets returns an error if a setting is given beside its file, or if a file can't be read or is empty.
func readSecrets(app *kong.Application) error {
	for _, file := range app.Flags {
		name, isFile := strings.CutSuffix(file.Name, "-file")
		if !isFile || file.Target.String() == "" {
			continue
		}
		setting := flagOf(app, name).Target
		if setting.String() != "" {
			return fmt.Errorf("--%s: is given, and --%s-file as well; want one of them", name, name)
		}
		text, err := os.ReadFile(file.Target.String())
		if err != nil {
			return fmt.Errorf("--%s-file: %w", name, err)
		}
		// Editors and echo end a file with a new line.
		if setting.SetString(strings.TrimRight(string(text), "\r\n")); setting.String() == "" {
			return fmt.Errorf("--%s-file: %s is empty", name, file.Target)
		}
	}
	return nil
}

func (s *Settings) putPasswords() (err error) {
	if _, isFile := s.SQLitePath(); isFile && s.DatabasePassword != "" {
		return errors.New("--database-password: SQLite has none")
	}
	if s.Redis == EmbeddedRedis && s.RedisPassword != "" {
		return errors.New("--redis-password: the embedded Redis needs none")
	}
	for _, store := range []struct {
		flag, of, password string
		address            *string
	}{
		{"--database-password", "--database", s.DatabasePassword, &s.Database},
		{"--redis-password", "--redis", s.RedisPassword, &s.Redis},
		{"--redis-password", "--redis-replicas", s.RedisPassword, &s.RedisReplicas},
	} {
		if store.password == "" || *store.address == "" {
			continue
		}
		if *store.address, err = withPassword(*store.address, store.password); err != nil {
			return fmt.Errorf("%s: %s %w", store.flag, store.of, err)
		}
	}
	return nil
}

// storeAddress matches the address of a store: scheme://, user@ and the rest. Each of the first two may be missing.
var storeAddress = regexp.MustCompile(`(?s)^([^,/@]*://)?(?:([^@,/?]*)@)?(.*)$`)

// withPassword puts a password into the address of a store. In a list of nodes the first node gets the password. An error
// means that the address has a password already.
func withPassword(address, password string) (string, error) {
	parts := storeAddress.FindStringSubmatch(address)
	scheme, user, host := parts[1], parts[2], parts[3]
	if strings.Contains(user, ":") {
		return address, errors.New("has a password already")
	}
	escaped := strings.ReplaceAll(url.QueryEscape(password), "+", "%20") // also commas, which separate nodes
	return scheme + user + ":" + escaped + "@" + host, nil
}
