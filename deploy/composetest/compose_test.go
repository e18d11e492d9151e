// Package composetest holds docker-compose.yml against what it promises, without Docker. It is a module
// of its own, so that the engine doesn't depend on Compose's libraries.
package composetest

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const (
	composeFile = "../../docker-compose.yml"
	dockerfile  = "../../Dockerfile"
)

// secrets is a sample environment with all that the file insists on.
var secrets = map[string]string{
	"FLASHSALE_SECRET":         "0123456789abcdef0123456789abcdef",
	"FLASHSALE_ADMIN_PASSWORD": "operator",
	"MYSQL_PASSWORD":           "stock",
}

// settings are the names of the environment that the server reads.
var settings = []string{
	"FLASHSALE_ACK",
	"FLASHSALE_ACK_WAIT",
	"FLASHSALE_ADMIN_PASSWORD",
	"FLASHSALE_CONFIG",
	"FLASHSALE_DATABASE",
	"FLASHSALE_DB_MAX_CONNS",
	"FLASHSALE_DEMO",
	"FLASHSALE_HTTP_ADDR",
	"FLASHSALE_IP_RATE",
	"FLASHSALE_LIMIT_ALGORITHM",
	"FLASHSALE_LIMIT_BURST",
	"FLASHSALE_LIMIT_RATE",
	"FLASHSALE_LIMIT_WAIT",
	"FLASHSALE_LOG_FORMAT",
	"FLASHSALE_LOG_LEVEL",
	"FLASHSALE_OPS_ADDR",
	"FLASHSALE_PAYMENT_SECRET",
	"FLASHSALE_PAY_GRACE",
	"FLASHSALE_PUBLIC_URL",
	"FLASHSALE_QUEUE",
	"FLASHSALE_REDIS",
	"FLASHSALE_SECRET",
	"FLASHSALE_STRATEGY",
	"FLASHSALE_TRUSTED_PROXIES",
	"FLASHSALE_USER_REQUESTS",
	"FLASHSALE_USER_WINDOW",
}

func load(t *testing.T, env map[string]string) (*types.Project, error) {
	t.Helper()
	var pairs []string
	for name, value := range env {
		pairs = append(pairs, name+"="+value)
	}
	options, err := cli.NewProjectOptions([]string{composeFile}, cli.WithEnv(pairs))
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(t.Context())
}

func mustLoad(t *testing.T) *types.Project {
	t.Helper()
	project, err := load(t, secrets)
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestServicesAndTheirImages(t *testing.T) {
	want := map[string]string{"app": "flashsale:dev", "mysql": "mysql:8.4", "redis": "redis:7"}
	got := map[string]string{}
	for name, service := range mustLoad(t).Services {
		got[name] = service.Image
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNothingIsTakenAsLatest(t *testing.T) {
	images := regexp.MustCompile(`(?m)^\s*(?:FROM|image:)\s+(\S+)`)
	for _, path := range []string{composeFile, dockerfile} {
		found := images.FindAllStringSubmatch(read(t, path), -1)
		if len(found) == 0 {
			t.Errorf("%s names no image", path)
		}
		for _, match := range found {
			if _, tag, _ := strings.Cut(match[1], ":"); tag == "" || tag == "latest" {
				t.Errorf("%s: %s has no fixed tag", path, match[1])
			}
		}
	}
}

func TestOnlyKnownSettingsAreUsed(t *testing.T) {
	names := regexp.MustCompile(`FLASHSALE_\w+`)
	for _, path := range []string{composeFile, dockerfile} {
		for _, name := range names.FindAllString(read(t, path), -1) {
			if !slices.Contains(settings, name) {
				t.Errorf("%s: the server reads no %s", path, name)
			}
		}
	}
}

func TestEachServiceIsBoundedAndComesBack(t *testing.T) {
	for name, service := range mustLoad(t).Services {
		if service.Restart != "unless-stopped" {
			t.Errorf("%s: restart %q", name, service.Restart)
		}
		if service.MemLimit <= 0 {
			t.Errorf("%s: no memory limit", name)
		}
		if files := service.Ulimits["nofile"]; files == nil || files.Soft < 65536 || files.Hard < files.Soft {
			t.Errorf("%s: nofile %+v", name, files)
		}
	}
}

func TestAppWaitsForHealthyStoresAndTalksToThem(t *testing.T) {
	project := mustLoad(t)
	app := project.Services["app"]
	for _, store := range []string{"mysql", "redis"} {
		if check := project.Services[store].HealthCheck; check == nil || check.Disable || len(check.Test) < 2 {
			t.Errorf("%s: health check %+v", store, check)
		}
		if on := app.DependsOn[store]; on.Condition != types.ServiceConditionHealthy || !on.Required {
			t.Errorf("app waits for %s: %+v", store, on)
		}
		if !slices.ContainsFunc(project.Services[store].Volumes, func(v types.ServiceVolumeConfig) bool {
			_, named := project.Volumes[v.Source]
			return named && v.Type == types.VolumeTypeVolume
		}) {
			t.Errorf("%s: no named volume", store)
		}
	}
	mysql := project.Services["mysql"].Environment
	for name, want := range map[string]string{
		"FLASHSALE_DATABASE": "mysql://" + value(mysql["MYSQL_USER"]) + ":" + secrets["MYSQL_PASSWORD"] +
			"@mysql:3306/" + value(mysql["MYSQL_DATABASE"]),
		"FLASHSALE_REDIS":          "redis://redis:6379/0",
		"FLASHSALE_SECRET":         secrets["FLASHSALE_SECRET"],
		"FLASHSALE_ADMIN_PASSWORD": secrets["FLASHSALE_ADMIN_PASSWORD"],
	} {
		if got := value(app.Environment[name]); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestStoresKeepWhatTheyAccepted(t *testing.T) {
	project := mustLoad(t)
	for store, wants := range map[string][]string{
		"mysql": {"--transaction-isolation=READ-COMMITTED", "--innodb-flush-log-at-trx-commit=1"},
		"redis": {"--appendonly yes", "--maxmemory-policy noeviction"},
	} {
		command := strings.Join(project.Services[store].Command, " ")
		for _, want := range wants {
			if !strings.Contains(command, want) {
				t.Errorf("%s: no %s in %q", store, want, command)
			}
		}
	}
}

func TestOnlyTheFrontDoorIsPublished(t *testing.T) {
	project := mustLoad(t)
	_, front, _ := strings.Cut(value(project.Services["app"].Environment["FLASHSALE_HTTP_ADDR"]), ":")
	for name, service := range project.Services {
		for _, port := range service.Ports {
			if name != "app" || strconv.Itoa(int(port.Target)) != front {
				t.Errorf("%s: publishes %d", name, port.Target)
			}
		}
	}
	if len(project.Services["app"].Ports) != 1 {
		t.Errorf("app publishes %v", project.Services["app"].Ports)
	}
}

func TestMissingSecretIsAnError(t *testing.T) {
	for name := range secrets {
		for how, change := range map[string]func(map[string]string){
			"absent": func(env map[string]string) { delete(env, name) },
			"empty":  func(env map[string]string) { env[name] = "" },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				env := maps.Clone(secrets)
				change(env)
				if _, err := load(t, env); err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("got %v, want an error that names %s", err, name)
				}
			})
		}
	}
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
