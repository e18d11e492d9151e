package deploy

import (
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const composeFile = root + "/docker-compose.yml"

// secrets is a sample environment with all that the file insists on.
var secrets = map[string]string{
	"FLASHSALE_SECRET":         "0123456789abcdef0123456789abcdef",
	"FLASHSALE_PAYMENT_SECRET": "fedcba9876543210fedcba9876543210",
	"FLASHSALE_ADMIN_PASSWORD": "operator",
	"MYSQL_PASSWORD":           "stock",
}

// profiles are the ways to run it, and what runs then.
var profiles = map[string][]string{
	"default": {"app", "mysql", "redis"},
	"scale": {
		"app-1", "app-2", "app-3", "grafana", "mysql", "nginx", "prometheus", "redis", "redis-replica",
		"sentinel-1", "sentinel-2", "sentinel-3",
	},
}

func load(t *testing.T, profile string, env map[string]string, more ...string) (*types.Project, error) {
	t.Helper()
	var pairs []string
	for name, value := range env {
		pairs = append(pairs, name+"="+value)
	}
	options, err := cli.NewProjectOptions(append([]string{composeFile}, more...), cli.WithEnv(pairs), cli.WithDefaultProfiles(profile))
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(t.Context())
}

func mustLoad(t *testing.T, profile string, more ...string) *types.Project {
	t.Helper()
	project, err := load(t, profile, secrets, more...)
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// eachProfile runs a test on what runs in each.
func eachProfile(t *testing.T, test func(t *testing.T, project *types.Project)) {
	for name := range profiles {
		t.Run(name, func(t *testing.T) { test(t, mustLoad(t, name)) })
	}
}

func TestServicesOfAProfile(t *testing.T) {
	for name, want := range profiles {
		project := mustLoad(t, name)
		if got := slices.Sorted(maps.Keys(project.Services)); !slices.Equal(got, want) {
			t.Errorf("%s runs %v, want %v", name, got, want)
		}
	}
}

func TestImagesArePinned(t *testing.T) {
	eachProfile(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			if !pinned(service.Image) {
				t.Errorf("%s runs whatever %s may be", name, service.Image)
			}
		}
	})
}

func TestInstancesTakeTheirSettings(t *testing.T) {
	alone := values(mustLoad(t, "default").Services["app"].Environment)
	takesSettings(t, alone)
	scaled := mustLoad(t, "scale")
	one := values(scaled.Services["app-1"].Environment)
	takesSettings(t, one)
	for _, other := range []string{"app-2", "app-3"} {
		if !maps.Equal(values(scaled.Services[other].Environment), one) {
			t.Errorf("%s is told something else than app-1", other)
		}
	}
}

func TestEveryInstanceIsWatched(t *testing.T) {
	targets := read(t, "deploy/prometheus/prometheus.yml")
	for name, service := range mustLoad(t, "scale").Services {
		if _, port, ok := strings.Cut(values(service.Environment)["FLASHSALE_OPS_ADDR"], ":"); ok && !strings.Contains(targets, name+":"+port) {
			t.Errorf("Prometheus doesn't ask %s:%s", name, port)
		}
	}
}

func TestEachServiceIsBoundedWatchedAndComesBack(t *testing.T) {
	eachProfile(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			if service.Restart != "unless-stopped" {
				t.Errorf("%s: restart %q", name, service.Restart)
			}
			if service.MemLimit <= 0 || service.CPUS <= 0 || service.PidsLimit <= 0 {
				t.Errorf("%s: limits: %d bytes, %g cores, %d processes", name, service.MemLimit, service.CPUS, service.PidsLimit)
			}
			if files := service.Ulimits["nofile"]; files == nil || files.Soft < 65536 || files.Hard < files.Soft {
				t.Errorf("%s: nofile %+v", name, files)
			}
			if service.Logging == nil || service.Logging.Options["max-size"] == "" || service.Logging.Options["max-file"] == "" {
				t.Errorf("%s: its log has no end", name)
			}
			if check := service.HealthCheck; check == nil || check.Disable || len(check.Test) < 2 || check.Interval == nil || check.Timeout == nil {
				t.Errorf("%s: health check %+v", name, check)
			}
			for other, on := range service.DependsOn {
				if on.Condition != types.ServiceConditionHealthy || !on.Required {
					t.Errorf("%s doesn't wait until %s is healthy", name, other)
				}
			}
			if strings.HasPrefix(name, "app") {
				if want := append([]string{"CMD"}, healthCheck(t)...); !slices.Equal(service.HealthCheck.Test, want) {
					t.Errorf("%s: health check %q; the image's is %q", name, service.HealthCheck.Test, want)
				}
				if !service.ReadOnly || service.StopGracePeriod == nil || !slices.Contains(service.CapDrop, "ALL") {
					t.Errorf("%s: %+v", name, service)
				}
			}
		}
	})
}

func TestMountedFilesAreThere(t *testing.T) {
	mounted := 0
	eachProfile(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			for _, volume := range service.Volumes {
				switch volume.Type {
				case types.VolumeTypeBind:
					mounted++
					if _, err := os.Stat(volume.Source); err != nil || !volume.ReadOnly {
						t.Errorf("%s: %s, read only %t: %v", name, volume.Source, volume.ReadOnly, err)
					}
				case types.VolumeTypeVolume:
					if _, ok := project.Volumes[volume.Source]; !ok {
						t.Errorf("%s: there is no volume %s", name, volume.Source)
					}
				}
			}
		}
	})
	if mounted < 10 {
		t.Errorf("only %d files are mounted", mounted)
	}
}

func TestStoresKeepWhatTheyAccepted(t *testing.T) {
	project := mustLoad(t, "scale")
	for store, wants := range map[string][]string{
		"mysql":         {"--transaction-isolation=READ-COMMITTED", "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"},
		"redis":         {"--appendonly yes", "--maxmemory-policy noeviction", "--replica-announce-ip redis"},
		"redis-replica": {"--appendonly yes", "--maxmemory-policy noeviction", "--replica-announce-ip redis-replica", "--replicaof redis 6379"},
	} {
		service := project.Services[store]
		command := strings.Join(service.Command, " ")
		for _, want := range wants {
			if !strings.Contains(command+" ", want+" ") {
				t.Errorf("%s: no %s in %q", store, want, command)
			}
		}
		if !slices.ContainsFunc(service.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Type == types.VolumeTypeVolume }) {
			t.Errorf("%s: no named volume", store)
		}
	}
	// All instances with all their connections, and somebody to look.
	match := regexp.MustCompile(`--max-connections=(\d+)`).FindStringSubmatch(strings.Join(project.Services["mysql"].Command, " "))
	if match == nil {
		t.Fatal("mysql: no --max-connections")
	}
	if most, err := strconv.Atoi(match[1]); err != nil || most < 3*32+10 {
		t.Errorf("mysql: %d connections, %v", most, err)
	}
}

func TestNamesInURLsAreServices(t *testing.T) {
	eachProfile(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			for _, setting := range []string{"FLASHSALE_DATABASE", "FLASHSALE_REDIS", "FLASHSALE_REDIS_REPLICAS"} {
				text := values(service.Environment)[setting]
				if text == "" {
					continue
				}
				_, rest, _ := strings.Cut(text, "://")
				hosts, path, _ := strings.Cut(rest[strings.LastIndex(rest, "@")+1:], "/")
				for host := range strings.SplitSeq(hosts, ",") {
					host, _, _ = strings.Cut(host, ":")
					other, ok := project.Services[host]
					if !ok || !slices.ContainsFunc(slices.Collect(maps.Keys(other.Networks)), func(n string) bool {
						_, both := service.Networks[n]
						return both
					}) {
						t.Errorf("%s: %s: %s can't be reached", name, setting, host)
					}
				}
				if strings.HasPrefix(text, "redis+sentinel://") && !strings.Contains(read(t, "deploy/redis/sentinel.conf"), "\nsentinel monitor "+strings.TrimSuffix(path, "/0")+" redis 6379 2\n") {
					t.Errorf("%s: the sentinels don't watch %s", name, path)
				}
			}
		}
	})
	mysql, app := mustLoad(t, "default").Services["mysql"], mustLoad(t, "default").Services["app"]
	database, err := url.Parse(values(app.Environment)["FLASHSALE_DATABASE"])
	if err != nil {
		t.Fatal(err)
	}
	password, _ := database.User.Password()
	env := values(mysql.Environment)
	if database.User.Username() != env["MYSQL_USER"] || password != env["MYSQL_PASSWORD"] || database.Path != "/"+env["MYSQL_DATABASE"] {
		t.Errorf("%s doesn't fit %v", database, env)
	}
}

// nginx sends to every instance, by names that are looked up once and so stand for addresses that stay; the instances
// believe it and nobody else.
func TestNginxAndItsInstancesKnowEachOther(t *testing.T) {
	project := mustLoad(t, "scale")
	front := project.Networks["front"].Ipam.Config[0]
	subnet, dynamic := netip.MustParsePrefix(front.Subnet), netip.MustParsePrefix(front.IPRange)
	fixed := map[string]bool{}
	address := func(name string) string {
		t.Helper()
		text := project.Services[name].Networks["front"].Ipv4Address
		at, err := netip.ParseAddr(text)
		if err != nil || !subnet.Contains(at) || dynamic.Contains(at) || fixed[text] {
			t.Errorf("%s: address %q, %v", name, text, err)
		}
		fixed[text] = true
		return text
	}
	nginx := address("nginx")
	var named []string
	for _, match := range regexp.MustCompile(`(?m)^server (\S+):8080 weight=\d+ `).FindAllStringSubmatch(read(t, "deploy/compose/instances.conf"), -1) {
		named = append(named, match[1])
		address(match[1])
		if trusted := values(project.Services[match[1]].Environment)["FLASHSALE_TRUSTED_PROXIES"]; trusted != nginx {
			t.Errorf("%s trusts %q, nginx is %s", match[1], trusted, nginx)
		}
	}
	if !slices.Equal(named, []string{"app-1", "app-2", "app-3"}) {
		t.Errorf("nginx sends to %v", named)
	}
}

func TestOnlyFrontDoorsArePublished(t *testing.T) {
	for profile, want := range map[string][]string{
		"default": {"app :8080->8080"},
		"scale":   {"grafana 127.0.0.1:3000->3000", "nginx :8080->80"},
	} {
		project := mustLoad(t, profile)
		var got []string
		for name, service := range project.Services {
			for _, port := range service.Ports {
				got = append(got, name+" "+port.HostIP+":"+port.Published+"->"+strconv.Itoa(int(port.Target)))
			}
			if strings.HasPrefix(service.Image, "mysql:") || strings.HasPrefix(service.Image, "redis:") {
				if len(service.Networks) != 1 || !project.Networks["back"].Internal {
					t.Errorf("%s is in networks %v", name, service.Networks)
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s publishes %q, want %q", profile, got, want)
		}
	}
}

func TestChoicesOfNginx(t *testing.T) {
	mount := func(project *types.Project, target string) string {
		t.Helper()
		found := ""
		for _, volume := range project.Services["nginx"].Volumes {
			if volume.Target == target {
				if found != "" {
					t.Errorf("%s is mounted twice", target)
				}
				found = volume.Source
			}
		}
		if _, err := os.Stat(found); err != nil {
			t.Errorf("%s: %v", target, err)
		}
		return filepath.Base(found)
	}
	if got := mount(mustLoad(t, "scale"), "/etc/nginx/balance.conf"); got != "weighted.conf" {
		t.Errorf("balanced by %s", got)
	}
	env := maps.Clone(secrets)
	env["BALANCE"], env["TLS_FOLDER"] = "ip-hash", t.TempDir()
	project, err := load(t, "scale", env, filepath.Join(root, "deploy/compose/tls.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := mount(project, "/etc/nginx/balance.conf"); got != "ip-hash.conf" {
		t.Errorf("balanced by %s", got)
	}
	if got := mount(project, "/etc/nginx/front.conf"); got != "tls.conf" {
		t.Errorf("TLS by %s", got)
	}
	if got := mount(project, "/etc/nginx/tls"); got != filepath.Base(env["TLS_FOLDER"]) {
		t.Errorf("certificates from %s", got)
	}
	var ports []string
	for _, port := range project.Services["nginx"].Ports {
		ports = append(ports, port.Published)
	}
	if !slices.Equal(ports, []string{"80", "443"}) {
		t.Errorf("nginx publishes %v", ports)
	}
}

func TestMissingSecretIsAnError(t *testing.T) {
	for profile := range profiles {
		for name := range secrets {
			for how, change := range map[string]func(map[string]string){
				"absent": func(env map[string]string) { delete(env, name) },
				"empty":  func(env map[string]string) { env[name] = "" },
			} {
				t.Run(profile+" "+name+" "+how, func(t *testing.T) {
					env := maps.Clone(secrets)
					change(env)
					if _, err := load(t, profile, env); err == nil || !strings.Contains(err.Error(), "set "+name) {
						t.Errorf("got %v, want an error that says to set %s", err, name)
					}
				})
			}
		}
	}
}

func values(env types.MappingWithEquals) map[string]string {
	set := map[string]string{}
	for name, value := range env {
		if value != nil {
			set[name] = *value
		}
	}
	return set
}
