package deploy

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// longestStop is how long an instance needs to finish what it accepted, and the air that a supervisor should give it.
const longestStop = 15 * time.Second

// sampleSecrets are what an operator puts into secrets.env.
var sampleSecrets = map[string]string{
	"FLASHSALE_DATABASE":       "mysql://flashsale:stock@mysql:3306/flashsale",
	"FLASHSALE_SECRET":         "0123456789abcdef0123456789abcdef",
	"FLASHSALE_PAYMENT_SECRET": "fedcba9876543210fedcba9876543210",
	"FLASHSALE_ADMIN_PASSWORD": "operator",
}

// cluster is what `kubectl apply -k deploy/kubernetes` would send, by kind and name.
type cluster struct {
	deployments map[string]*apps.Deployment
	services    map[string]*core.Service
	configs     map[string]*core.ConfigMap
	secrets     map[string]*core.Secret
	budgets     map[string]*policy.PodDisruptionBudget
	scalers     map[string]*autoscaling.HorizontalPodAutoscaler
	policies    map[string]*networking.NetworkPolicy
}

// buildCluster runs kustomize and reads what it gives as the API would: strictly, into the API's own types.
func buildCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"nginx", "kubernetes"} {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(root, "deploy", folder))); err != nil {
			t.Fatal(err)
		}
	}
	var lines strings.Builder
	for name, value := range sampleSecrets {
		fmt.Fprintf(&lines, "%s=%s\n", name, value)
	}
	if err := os.WriteFile(filepath.Join(dir, "kubernetes", "secrets.env"), []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(dir, "kubernetes"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		map[string]*apps.Deployment{},
		map[string]*core.Service{},
		map[string]*core.ConfigMap{},
		map[string]*core.Secret{},
		map[string]*policy.PodDisruptionBudget{},
		map[string]*autoscaling.HorizontalPodAutoscaler{},
		map[string]*networking.NetworkPolicy{},
	}
	for _, resource := range resources.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		switch id := resource.GetApiVersion() + " " + resource.GetKind(); id {
		case "apps/v1 Deployment":
			add(t, c.deployments, resource.GetName(), text)
		case "v1 Service":
			add(t, c.services, resource.GetName(), text)
		case "v1 ConfigMap":
			add(t, c.configs, resource.GetName(), text)
		case "v1 Secret":
			add(t, c.secrets, resource.GetName(), text)
		case "policy/v1 PodDisruptionBudget":
			add(t, c.budgets, resource.GetName(), text)
		case "autoscaling/v2 HorizontalPodAutoscaler":
			add(t, c.scalers, resource.GetName(), text)
		case "networking.k8s.io/v1 NetworkPolicy":
			add(t, c.policies, resource.GetName(), text)
		default:
			t.Errorf("nobody checks a %s", id)
		}
	}
	return c
}

func add[T any](t *testing.T, to map[string]*T, name string, text []byte) {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	to[name] = object
}

// pods are the templates of the deployments that a selector finds.
func (c *cluster) pods(t *testing.T, selector *meta.LabelSelector) (found []*core.PodTemplateSpec) {
	t.Helper()
	chosen, err := meta.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	for _, deployment := range c.deployments {
		if !chosen.Empty() && chosen.Matches(labels.Set(deployment.Spec.Template.Labels)) {
			found = append(found, &deployment.Spec.Template)
		}
	}
	return found
}

// hasPort reports whether a container of the pod has a port of this name.
func hasPort(pod *core.PodTemplateSpec, port intstr.IntOrString) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c core.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == port.StrVal })
	})
}

func TestKubernetesHasAllThatItNames(t *testing.T) {
	c := buildCluster(t)
	if len(c.deployments) != 2 || len(c.services) != 3 || len(c.budgets) != 2 || len(c.scalers) != 1 || len(c.policies) != 1 || len(c.secrets) != 1 {
		t.Fatalf("%+v", c)
	}
	for name, d := range c.deployments {
		if found := c.pods(t, d.Spec.Selector); len(found) != 1 || found[0] != &d.Spec.Template {
			t.Errorf("%s selects %d deployments' pods", name, len(found))
		}
		for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
			if len(c.pods(t, spread.LabelSelector)) != 1 {
				t.Errorf("%s is not spread by its own pods", name)
			}
		}
		c.checkVolumes(t, name, d.Spec.Template.Spec)
	}
	for name, s := range c.services {
		found := c.pods(t, &meta.LabelSelector{MatchLabels: s.Spec.Selector})
		if len(found) != 1 {
			t.Fatalf("service %s finds %d deployments' pods", name, len(found))
		}
		for _, port := range s.Spec.Ports {
			if !hasPort(found[0], port.TargetPort) {
				t.Errorf("service %s: no container has the port %s", name, port.TargetPort.String())
			}
		}
	}
	for name, b := range c.budgets {
		if len(c.pods(t, b.Spec.Selector)) != 1 || b.Spec.MaxUnavailable == nil || b.Spec.MaxUnavailable.IntValue() != 1 {
			t.Errorf("budget %s: %+v", name, b.Spec)
		}
	}
	for name, s := range c.scalers {
		target := s.Spec.ScaleTargetRef
		d, ok := c.deployments[target.Name]
		if !ok || target.Kind != "Deployment" || d.Spec.Replicas != nil || s.Spec.MinReplicas == nil || *s.Spec.MinReplicas < 2 || s.Spec.MaxReplicas <= *s.Spec.MinReplicas {
			t.Errorf("scaler %s: %+v", name, s.Spec)
		}
		if d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().IsZero() {
			t.Errorf("scaler %s: a part of nothing is asked for", name)
		}
	}
	for name, p := range c.policies {
		guarded := c.pods(t, &p.Spec.PodSelector)
		if len(guarded) != 1 {
			t.Fatalf("policy %s guards %d deployments", name, len(guarded))
		}
		for _, rule := range p.Spec.Ingress {
			for _, port := range rule.Ports {
				if !hasPort(guarded[0], *port.Port) {
					t.Errorf("policy %s: no port %s", name, port.Port.String())
				}
			}
			for _, peer := range rule.From {
				if peer.PodSelector != nil && len(c.pods(t, peer.PodSelector)) != 1 {
					t.Errorf("policy %s lets in %v, which isn't there", name, peer.PodSelector)
				}
			}
		}
	}
}

// fromElsewhere are the secrets that something else makes, and their keys.
var fromElsewhere = map[string][]string{"flashsale-tls": {"tls.crt", "tls.key"}}

// checkVolumes checks that each mount has a volume, each volume a mount and a source, each source the keys.
func (c *cluster) checkVolumes(t *testing.T, name string, pod core.PodSpec) {
	t.Helper()
	keys := map[string][]string{} // by volume; nil: any file
	for _, v := range pod.Volumes {
		keys[v.Name] = nil
		switch {
		case v.ConfigMap != nil:
			config, ok := c.configs[v.ConfigMap.Name]
			if !ok {
				t.Fatalf("%s: there is no config map %s", name, v.ConfigMap.Name)
			}
			keys[v.Name] = slices.Collect(maps.Keys(config.Data))
		case v.Secret != nil:
			has := fromElsewhere[v.Secret.SecretName]
			for _, item := range v.Secret.Items {
				if !slices.Contains(has, item.Key) {
					t.Errorf("%s: %s has no %s", name, v.Secret.SecretName, item.Key)
				}
				keys[v.Name] = append(keys[v.Name], item.Path)
			}
		case v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil:
			t.Errorf("%s: volume %s has no bound", name, v.Name)
		}
	}
	used := map[string]bool{}
	for _, container := range pod.Containers {
		for _, m := range container.VolumeMounts {
			has, ok := keys[m.Name]
			used[m.Name] = true
			if !ok || m.SubPath != "" && !slices.Contains(has, m.SubPath) {
				t.Errorf("%s: nothing to mount at %s", name, m.MountPath)
			}
		}
	}
	if len(used) != len(keys) {
		t.Errorf("%s: volumes %v, mounted %v", name, keys, used)
	}
}

func TestKubernetesInstances(t *testing.T) {
	c := buildCluster(t)
	pod := c.deployments["flashsale"].Spec.Template.Spec
	container := pod.Containers[0]

	env := map[string]string{}
	for _, source := range container.EnvFrom {
		switch {
		case source.ConfigMapRef != nil:
			maps.Copy(env, c.configs[source.ConfigMapRef.Name].Data)
		case source.SecretRef != nil:
			for name, value := range c.secrets[source.SecretRef.Name].Data {
				env[name] = string(value)
			}
		}
	}
	for name, value := range sampleSecrets {
		if env[name] != value {
			t.Errorf("%s is %q", name, env[name])
		}
	}
	takesSettings(t, env)
	for port, setting := range map[string]string{"http": "FLASHSALE_HTTP_ADDR", "ops": "FLASHSALE_OPS_ADDR"} {
		if !slices.ContainsFunc(container.Ports, func(p core.ContainerPort) bool {
			return p.Name == port && env[setting] == fmt.Sprintf("0.0.0.0:%d", p.ContainerPort)
		}) {
			t.Errorf("no port %s is where %s=%s is", port, setting, env[setting])
		}
	}

	routes := read(t, "handler/router.go")
	for what, probe := range map[string]*core.Probe{"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != what || probe.HTTPGet.Port.StrVal != "http" || !strings.Contains(routes, `.GET("`+what+`", `) {
			t.Errorf("%s is asked by %+v", what, probe)
		}
	}
	if start := container.StartupProbe; start == nil || start.HTTPGet.Path != "/healthz" || start.PeriodSeconds*start.FailureThreshold < 60 {
		t.Errorf("start: %+v", start)
	}
	stop := time.Duration(container.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < stop+longestStop {
		t.Errorf("it is killed after %s, and needs %s", grace, stop+longestStop)
	}
	// The scaler's most instances, all asking MySQL, are told to the operator in numbers that must be right.
	if most := c.scalers["flashsale"].Spec.MaxReplicas; !strings.Contains(read(t, "docs/deploy.md"), fmt.Sprintf("%d connections", most*32)) {
		t.Errorf("docs/deploy.md doesn't say that %d instances open %d connections", most, most*32)
	}
}

func TestKubernetesPodsAreShut(t *testing.T) {
	composed := mustLoad(t, "scale").Services["nginx"].Image
	for name, d := range buildCluster(t).deployments {
		pod := d.Spec.Template.Spec
		if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || s.SeccompProfile == nil {
			t.Errorf("%s: %+v", name, s)
		}
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
			t.Errorf("%s is given what it doesn't need", name)
		}
		for _, container := range pod.Containers {
			s := container.SecurityContext
			if s == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
				t.Errorf("%s: %+v", name, s)
			}
			if container.Resources.Limits.Memory().IsZero() || container.Resources.Requests.Memory().IsZero() {
				t.Errorf("%s: memory %+v", name, container.Resources)
			}
			if !pinned(container.Image) || name == "flashsale-nginx" && container.Image != composed {
				t.Errorf("%s runs %s", name, container.Image)
			}
			if container.LivenessProbe == nil || container.ReadinessProbe == nil {
				t.Errorf("%s: nobody asks whether it lives", name)
			}
		}
	}
}

// Each file that nginx includes is where it looks for it.
func TestKubernetesNginxHasItsFiles(t *testing.T) {
	c := buildCluster(t)
	pod := c.deployments["flashsale-nginx"].Spec.Template.Spec
	volumes := map[string]string{} // by name, the config map
	for _, v := range pod.Volumes {
		if v.ConfigMap != nil {
			volumes[v.Name] = v.ConfigMap.Name
		}
	}
	there := map[string]string{} // by path below /etc/nginx, the text
	for _, m := range pod.Containers[0].VolumeMounts {
		data := map[string]string{}
		if config := c.configs[volumes[m.Name]]; config != nil {
			data = config.Data
		}
		at := strings.TrimPrefix(m.MountPath, "/etc/nginx/")
		if m.SubPath != "" {
			there[at] = data[m.SubPath]
			continue
		}
		for key, text := range data {
			there[at+"/"+key] = text
		}
	}
	checked := 0
	for path, text := range there {
		for _, match := range regexp.MustCompile(`(?m)^\s*include (\S+);`).FindAllStringSubmatch(text, -1) {
			checked++
			if there[match[1]] == "" {
				t.Errorf("%s includes %s, which isn't there", path, match[1])
			}
		}
	}
	if checked < 8 {
		t.Errorf("only %d files are included", checked)
	}
	if !strings.Contains(there["instances.conf"], "server flashsale:80 ") || c.services["flashsale"].Spec.Ports[0].Port != 80 {
		t.Errorf("nginx sends to %q", there["instances.conf"])
	}
}
