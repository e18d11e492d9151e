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

// secrets is a sample environment with every variable that the file requires.
var secrets = map[string]string{
	"FLASHSALE_SECRET":         "0123456789abcdef0123456789abcdef",
	"FLASHSALE_PAYMENT_SECRET": "fedcba9876543210fedcba9876543210",
	"FLASHSALE_ADMIN_PASSWORD": "operator",
	"FLASHSALE_PAYMENT":        "sandbox",
	"MYSQL_PASSWORD":           "stock",
}

// profiles maps each profile to its services.
var profiles = map[string][]string{
	"default": {"app", "mysql", "redis"},
	"scale": {
		"alertmanager", "app-1", "app-2", "app-3", "grafana", "mysql", "nginx", "prometheus", "redis", "redis-replica",
		"sentinel-1", "sentinel-2", "sentinel-3",
	},
}

func load(t *testing.T, profile string, env map[string]string, more ...cli.ProjectOptionsFn) (*types.Project, error) {
	t.Helper()
	var pairs []string
	for name, value := range env {
		pairs = append(pairs, name+"="+value)
	}
	files := []string{filepath.Join(root, "docker-compose.yml")}
	options, err := cli.NewProjectOptions(files, append([]cli.ProjectOptionsFn{cli.WithEnv(pairs), cli.WithDefaultProfiles(profile)}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(t.Context())
}

func mustLoad(t *testing.T, profile string) *types.Project {
	t.Helper()
	project, err := load(t, profile, secrets)
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// eachService runs a test on the services of each profile.
func eachService(t *testing.T, test func(t *testing.T, project *types.Project, name string, service types.ServiceConfig)) {
	for profile := range profiles {
		project := mustLoad(t, profile)
		for name, service := range project.Services {
			t.Run(profile+" "+name, func(t *testing.T) { test(t, project, name, service) })
		}
	}
}

func TestServicesOfAProfile(t *testing.T) {
	for profile, want := range profiles {
		if got := slices.Sorted(maps.Keys(mustLoad(t, profile).Services)); !slices.Equal(got, want) {
			t.Errorf("%s runs %v, want %v", profile, got, want)
		}
	}
}

func TestInstancesTakeTheirSettings(t *testing.T) {
	takesSettings(t, values(mustLoad(t, "default").Services["app"]))
	scaled := mustLoad(t, "scale").Services
	one := values(scaled["app-1"])
	takesSettings(t, one)
	for _, other := range []string{"app-2", "app-3"} {
		if !maps.Equal(values(scaled[other]), one) {
			t.Errorf("the settings of %s differ from those of app-1", other)
		}
	}
}

// What .env says of a setting reaches the instances, unless the file itself decides it.
func TestInstancesTakeWhatEnvSays(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, ".env"), []byte("FLASHSALE_ACCOUNTS=open\nFLASHSALE_HTTP_ADDR=elsewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for profile, name := range map[string]string{"default": "app", "scale": "app-2"} {
		project, err := load(t, profile, secrets, cli.WithWorkingDirectory(folder))
		if err != nil {
			t.Fatal(err)
		}
		env := values(project.Services[name])
		hold(t, profile, map[string]bool{
			"a setting of .env":     env["FLASHSALE_ACCOUNTS"] == "open",
			"one of the file's own": env["FLASHSALE_HTTP_ADDR"] == "0.0.0.0:8080",
		})
	}
}

// Prometheus tells the Alertmanager, which posts alerts to ALERTS_URL, if there is one.
func TestAlertsReachSomebody(t *testing.T) {
	if targets := read(t, "deploy/prometheus/prometheus.yml"); !strings.Contains(targets, `["alertmanager:9093"]`) {
		t.Error("Prometheus tells nobody")
	}
	for address, want := range map[string]string{"": "webhook_configs: []\n", "http://pager/hook": `webhook_configs: [{url: "http://pager/hook"}]`} {
		env := maps.Clone(secrets)
		env["ALERTS_URL"] = address
		project, err := load(t, "scale", env)
		if err != nil {
			t.Fatal(err)
		}
		if config := project.Configs["alertmanager"].Content; !strings.Contains(config, want) {
			t.Errorf("with %q the Alertmanager is told %s", address, config)
		}
	}
}

// cacheSize matches the bound of a cache of nginx, in MB.
var cacheSize = regexp.MustCompile(`proxy_cache_path .* max_size=(\d+)m `)

// nginx's caches may outgrow their bounds for a moment, and still fit into their volumes.
func TestCachesFitTheirVolumes(t *testing.T) {
	sum := 0
	for _, found := range cacheSize.FindAllStringSubmatch(read(t, "deploy/nginx/nginx.conf"), -1) {
		size, _ := strconv.Atoi(found[1])
		sum += size
	}
	const caches, room = 3, "384"
	if found := cacheSize.FindAllString(read(t, "deploy/nginx/nginx.conf"), -1); len(found) != caches || sum > 320 {
		t.Errorf("%d caches may grow to %d MB", len(found), sum)
	}
	if !slices.Contains(mustLoad(t, "scale").Services["nginx"].Tmpfs, "/var/cache/nginx:size="+room+"m") {
		t.Errorf("Compose's volume has not %s MB", room)
	}
	if !strings.Contains(read(t, "deploy/kubernetes/nginx.yaml"), "emptyDir: {sizeLimit: "+room+"Mi}") {
		t.Errorf("Kubernetes' volume has not %s MB", room)
	}
}

func TestEveryInstanceIsWatched(t *testing.T) {
	targets := read(t, "deploy/prometheus/prometheus.yml")
	for name, service := range mustLoad(t, "scale").Services {
		_, port, ok := strings.Cut(values(service)["FLASHSALE_OPS_ADDR"], ":")
		if ok && !strings.Contains(targets, name+":"+port) {
			t.Errorf("Prometheus doesn't ask %s:%s", name, port)
		}
	}
}

func TestEachServiceIsBoundedWatchedAndComesBack(t *testing.T) {
	eachService(t, func(t *testing.T, _ *types.Project, name string, service types.ServiceConfig) {
		files, logging, check := service.Ulimits["nofile"], service.Logging, service.HealthCheck
		hold(t, service.Image, map[string]bool{
			"the image is pinned":     pinned(service.Image),
			"it is restarted":         service.Restart == "unless-stopped",
			"memory is limited":       service.MemLimit > 0,
			"processors are limited":  service.CPUS > 0,
			"processes are limited":   service.PidsLimit > 0,
			"files are enough":        files != nil && files.Soft >= 65536 && files.Hard >= files.Soft,
			"the log is limited":      logging != nil && logging.Options["max-size"] != "" && logging.Options["max-file"] != "",
			"its health is checked":   check != nil && !check.Disable && len(check.Test) >= 2,
			"health checks are timed": check != nil && check.Interval != nil && check.Timeout != nil,
		})
		for other, on := range service.DependsOn {
			if on.Condition != types.ServiceConditionHealthy || !on.Required {
				t.Errorf("it doesn't wait until %s is healthy", other)
			}
		}
		if strings.HasPrefix(name, "app") {
			hold(t, service.Image, map[string]bool{
				"the health check is the image's": slices.Equal(check.Test, append([]string{"CMD"}, healthCheck(t)...)),
				"its files are read-only":         service.ReadOnly,
				"it has time to stop":             service.StopGracePeriod != nil,
				"it has no capabilities":          slices.Contains(service.CapDrop, "ALL"),
			})
		}
	})
}

func TestMountedFilesAreThere(t *testing.T) {
	mounted := 0
	eachService(t, func(t *testing.T, project *types.Project, _ string, service types.ServiceConfig) {
		for _, volume := range service.Volumes {
			switch volume.Type {
			case types.VolumeTypeBind:
				mounted++
				if _, err := os.Stat(volume.Source); err != nil || !volume.ReadOnly {
					t.Errorf("%s, read only %t: %v", volume.Source, volume.ReadOnly, err)
				}
			case types.VolumeTypeVolume:
				if _, ok := project.Volumes[volume.Source]; !ok {
					t.Errorf("the volume %s is not defined", volume.Source)
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
	durable := []string{"--appendonly yes", "--maxmemory-policy noeviction"}
	for store, wants := range map[string][]string{
		"mysql":         {"--transaction-isolation=READ-COMMITTED", "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"},
		"redis":         append(durable, "--replica-announce-ip redis"),
		"redis-replica": append(durable, "--replica-announce-ip redis-replica", "--replicaof redis 6379"),
	} {
		service := project.Services[store]
		command := strings.Join(service.Command, " ") + " "
		for _, want := range wants {
			if !strings.Contains(command, want+" ") {
				t.Errorf("%s: no %s in %q", store, want, command)
			}
		}
		if !slices.ContainsFunc(service.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Type == types.VolumeTypeVolume }) {
			t.Errorf("%s: no named volume", store)
		}
	}
	// Enough for all connections of three instances, and for administrators.
	match := regexp.MustCompile(`--max-connections=(\d+)`).FindStringSubmatch(strings.Join(project.Services["mysql"].Command, " "))
	if match == nil {
		t.Fatal("mysql: no --max-connections")
	}
	if most, err := strconv.Atoi(match[1]); err != nil || most < 3*32+10 {
		t.Errorf("mysql: %d connections, %v", most, err)
	}
}

func TestNamesInURLsAreServices(t *testing.T) {
	sentinel := read(t, "deploy/redis/sentinel.conf")
	eachService(t, func(t *testing.T, project *types.Project, _ string, service types.ServiceConfig) {
		for _, setting := range []string{"FLASHSALE_DATABASE", "FLASHSALE_REDIS", "FLASHSALE_REDIS_REPLICAS"} {
			text := values(service)[setting]
			if text == "" {
				continue
			}
			_, rest, _ := strings.Cut(text, "://")
			hosts, path, _ := strings.Cut(rest[strings.LastIndex(rest, "@")+1:], "/")
			for host := range strings.SplitSeq(hosts, ",") {
				host, _, _ = strings.Cut(host, ":")
				shared := maps.Clone(project.Services[host].Networks)
				maps.DeleteFunc(shared, func(network string, _ *types.ServiceNetworkConfig) bool {
					_, both := service.Networks[network]
					return !both
				})
				if len(shared) == 0 {
					t.Errorf("%s: %s can't be reached", setting, host)
				}
			}
			monitor := "\nsentinel monitor " + strings.TrimSuffix(path, "/0") + " redis 6379 2\n"
			if strings.HasPrefix(text, "redis+sentinel://") && !strings.Contains(sentinel, monitor) {
				t.Errorf("the sentinels don't watch %s", path)
			}
		}
	})
	project := mustLoad(t, "default")
	mysql := values(project.Services["mysql"])
	database, err := url.Parse(values(project.Services["app"])["FLASHSALE_DATABASE"])
	if err != nil {
		t.Fatal(err)
	}
	user := url.UserPassword(mysql["MYSQL_USER"], mysql["MYSQL_PASSWORD"])
	if database.User.String() != user.String() || database.Path != "/"+mysql["MYSQL_DATABASE"] {
		t.Errorf("%s doesn't fit %v", database, mysql)
	}
}

// nginx looks up the instances' names once, so their addresses are fixed. Instances trust only nginx.
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
	lines := regexp.MustCompile(`(?m)^server (\S+):8080 weight=\d+ `)
	for _, match := range lines.FindAllStringSubmatch(read(t, "deploy/compose/instances.conf"), -1) {
		named = append(named, match[1])
		address(match[1])
		if trusted := values(project.Services[match[1]])["FLASHSALE_TRUSTED_PROXIES"]; trusted != nginx {
			t.Errorf("%s trusts %q, nginx is %s", match[1], trusted, nginx)
		}
	}
	if !slices.Equal(named, []string{"app-1", "app-2", "app-3"}) {
		t.Errorf("nginx sends requests to %v", named)
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
			store := strings.HasPrefix(service.Image, "mysql:") || strings.HasPrefix(service.Image, "redis:")
			if store && (len(service.Networks) != 1 || !project.Networks["back"].Internal) {
				t.Errorf("%s is in networks %v", name, service.Networks)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s publishes %q, want %q", profile, got, want)
		}
	}
}

func TestChoicesOfNginx(t *testing.T) {
	// mounted maps a file of /etc/nginx to the name of its source.
	mounted := func(project *types.Project, targets ...string) map[string]string {
		t.Helper()
		found := map[string]string{}
		for _, volume := range project.Services["nginx"].Volumes {
			if target := strings.TrimPrefix(volume.Target, "/etc/nginx/"); slices.Contains(targets, target) {
				if found[target] != "" {
					t.Errorf("%s is mounted twice", target)
				}
				if _, err := os.Stat(volume.Source); err != nil {
					t.Error(err)
				}
				found[target] = filepath.Base(volume.Source)
			}
		}
		return found
	}
	if got := mounted(mustLoad(t, "scale"), "balance.conf"); got["balance.conf"] != "weighted.conf" {
		t.Errorf("by default: %v", got)
	}
	env := maps.Clone(secrets)
	env["BALANCE"], env["TLS_FOLDER"] = "ip-hash", t.TempDir()
	project, err := load(t, "scale", env, func(o *cli.ProjectOptions) error {
		o.ConfigPaths = append(o.ConfigPaths, filepath.Join(root, "deploy/compose/tls.yml"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"balance.conf": "ip-hash.conf", "front.conf": "tls.conf", "tls": filepath.Base(env["TLS_FOLDER"])}
	if got := mounted(project, "balance.conf", "front.conf", "tls"); !maps.Equal(got, want) {
		t.Errorf("mounted %v, want %v", got, want)
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
				env := maps.Clone(secrets)
				change(env)
				if _, err := load(t, profile, env); err == nil || !strings.Contains(err.Error(), "set "+name) {
					t.Errorf("%s, %s %s: got %v, want an error that says to set %[2]s", profile, name, how, err)
				}
			}
		}
	}
}

// values returns the environment of a service.
func values(service types.ServiceConfig) map[string]string {
	set := map[string]string{}
	for name, value := range service.Environment {
		if value != nil {
			set[name] = *value
		}
	}
	return set
}
