package config

import (
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit/check"
)

// Settings from a file, the environment and a flag either end in an error of one line, or in settings with which a server
// may start.
func FuzzSettings(f *testing.F) {
	const secret = "0123456789abcdef0123456789abcdef"
	f.Add("", "", "")
	f.Add("strategy: redis\nbatch: 12\ntrusted-proxies: [10.0.0.1, \"::1\"]\n", "BATCH", "--ack-wait=1s")
	f.Add("secret: "+secret+"\nadmin-password: 12345678\n", "DATABASE", "--redis=redis://h:1/0")
	f.Add("batch: 1e3\n", "LIMIT_RATE", "--limit-rate=Inf")
	f.Add("batch: .nan\nip-rate: -0\n", "PAY_GRACE", "--pay-grace=-1ns")
	f.Add("a: {b: [c]}\n", "OPS_ADDR", "--ops-addr=:0")
	f.Add("batch: [1, [2]]\n? x\n", "STRATEGY", "--strategy=naive")
	f.Add("&a batch: *a\n", "DEMO", "--demo=maybe")
	f.Add("batch: 1\nbatch: 2\n", "PUBLIC_URL", "--public-url=http://[::1")
	f.Add("\xff\xfe", "CONFIG", "--config=")
	f.Add("<<: {batch: 3}\n", "", "--batch=9223372036854775808")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, file, name, flag string) {
		path := filepath.Join(dir, "settings.yaml")
		check.Done(os.WriteFile(path, []byte(file), 0o600))
		args := []string{"serve", "--config=" + path}
		setting, _, _ := strings.Cut(flag, "=")
		// --config could name any file of the machine.
		if strings.HasPrefix(flag, "--") && setting != "--config" && setting != "--help" {
			args = append(args, flag)
		}
		env := map[string]string{}
		if name != "" && name != "CONFIG" {
			_, env[envPrefix+name], _ = strings.Cut(flag, "=")
		}
		cmd, _, _, err := parse(env, args...)
		if err == nil {
			err = cmd.Settings.Validate()
		}
		if err != nil {
			if line := err.Error(); line == "" || strings.ContainsAny(line, "\n") {
				t.Errorf("refused with %q", line)
			}
			return
		}
		s := cmd.Settings
		finite := func(rate float64) bool { return !math.IsNaN(rate) && rate >= 0 && rate <= 1e9 }
		_, _, opsErr := net.SplitHostPort(s.OpsAddr)
		switch {
		case s.Strategy == "naive" && !s.AllowOversell,
			s.Batch < 1 || s.Batch > 512, s.DBMaxConns < 4 || s.DBMaxConns > 10_000,
			!finite(s.LimitRate) || s.LimitRate == 0 || !finite(s.IPRate), s.LimitBurst < 1, s.UserRequests < 0,
			s.AckWait < 0 || s.AckWait > 10*time.Second, s.LimitWait < 0 || s.LimitWait > 10*time.Second, s.PayGrace < 0,
			!(s.LocalShare > 0 && s.LocalShare <= 1), s.LocalBuffer < 0,
			s.OpsAddr != "" && opsErr != nil,
			len(s.Secret) < MinSecret && (s.Secret != "" || !s.Embedded()),
			len(s.PaymentSecret) < MinSecret && (s.PaymentSecret != "" || !s.Embedded()),
			len(s.AdminPassword) < 8 && (s.AdminPassword != "" || !s.Embedded()):
			t.Errorf("%q, %s, %q: accepted as %+v", file, name, flag, s)
		}
	})
}
