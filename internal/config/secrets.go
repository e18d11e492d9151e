package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// secretFiles are the flags that name files with secrets, as orchestrators provide them. A setting and its file are
// not given together.
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

// read sets the settings whose files are given, and then puts the passwords of the stores into their addresses.
func (f *secretFiles) read(s *Settings) error {
	for _, secret := range []struct {
		flag, file string
		value      *string
	}{
		{"--secret", f.SecretFile, &s.Secret},
		{"--payment-secret", f.PaymentSecretFile, &s.PaymentSecret},
		{"--admin-password", f.AdminPasswordFile, &s.AdminPassword},
		{"--database-password", f.DatabasePasswordFile, &s.DatabasePassword},
		{"--redis-password", f.RedisPasswordFile, &s.RedisPassword},
		{"--client-secret", f.ClientSecretFile, &s.ClientSecret},
		{"--stripe-key", f.StripeKeyFile, &s.StripeKey},
		{"--stripe-webhook-secret", f.StripeWebhookSecretFile, &s.StripeWebhookSecret},
		{"--queue-url", f.QueueURLFile, &s.QueueURL},
	} {
		if secret.file == "" {
			continue
		}
		if *secret.value != "" {
			return fmt.Errorf("%s: is given, and %s-file as well; want one of them", secret.flag, secret.flag)
		}
		text, err := os.ReadFile(secret.file)
		if err != nil {
			return fmt.Errorf("%s-file: %w", secret.flag, err)
		}
		// Editors and echo end a file with a new line.
		if *secret.value = strings.TrimRight(string(text), "\r\n"); *secret.value == "" {
			return fmt.Errorf("%s-file: %s is empty", secret.flag, secret.file)
		}
	}
	var err error
	if s.DatabasePassword != "" {
		if _, isFile := s.SQLitePath(); isFile {
			return errors.New("--database-password: SQLite has none")
		}
		if s.Database, err = withPassword(s.Database, s.DatabasePassword); err != nil {
			return fmt.Errorf("--database-password: --database %w", err)
		}
	}
	if s.RedisPassword != "" {
		if s.Redis == EmbeddedRedis {
			return errors.New("--redis-password: the embedded Redis needs none")
		}
		if s.Redis, err = withPassword(s.Redis, s.RedisPassword); err != nil {
			return fmt.Errorf("--redis-password: --redis %w", err)
		}
		if s.RedisReplicas != "" {
			if s.RedisReplicas, err = withPassword(s.RedisReplicas, s.RedisPassword); err != nil {
				return fmt.Errorf("--redis-password: --redis-replicas %w", err)
			}
		}
	}
	return nil
}

// withPassword puts a password into the address of a store: scheme://user@host/db, or a list of nodes, of which the
// first has the user.
func withPassword(address, password string) (string, error) {
	scheme, rest, found := strings.Cut(address, "://")
	if found {
		scheme += "://"
	} else {
		scheme, rest = "", address
	}
	user, host, found := strings.Cut(rest, "@")
	if !found || strings.ContainsAny(user, ",/?") {
		user, host = "", rest
	}
	if strings.Contains(user, ":") {
		return address, errors.New("has a password already")
	}
	escaped := strings.ReplaceAll(url.QueryEscape(password), "+", "%20") // also commas, which separate nodes
	return scheme + user + ":" + escaped + "@" + host, nil
}
