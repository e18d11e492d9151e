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

// longestStop is the time that an instance needs to finish accepted requests, with a margin.
const longestStop = 15 * time.Second

// sampleSecrets is an operator's secrets.env.
var sampleSecrets = map[string]string{
	"FLASHSALE_DATABASE":       "mysql://flashsale:stock@mysql:3306/flashsale",
	"FLASHSALE_SECRET":         "0123456789abcdef0123456789abcdef",
	"FLASHSALE_PAYMENT_SECRET": "fedcba9876543210fedcba9876543210",
	"FLASHSALE_ADMIN_PASSWORD": "operator",
	"FLASHSALE_STRIPE_KEY":     "sk_test_123", "FLASHSALE_STRIPE_WEBHOOK_SECRET": "whsec_123",
}

// cluster is what `kubectl apply -k deploy/kubernetes` sends, by kind and name.
type cluster struct {
	deployments map[string]*apps.Deployment
	services    map[string]*core.Service
	configs     map[string]*core.ConfigMap
	secrets     map[string]*core.Secret
	budgets     map[string]*policy.PodDisruptionBudget
	scalers     map[string]*autoscaling.HorizontalPodAutoscaler
	policies    map[string]*networking.NetworkPolicy
}

// buildCluster runs kustomize and decodes the output as the API does: strictly, into the API's own types.
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
	kustomizer := krusty.MakeKustomizer(krusty.MakeDefaultOptions())
	resources, err := kustomizer.Run(filesys.MakeFsOnDisk(), filepath.Join(dir, "kubernetes"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{}
	for _, resource := range resources.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		name := resource.GetName()
		switch id := resource.GetApiVersion() + " " + resource.GetKind(); id {
		case "apps/v1 Deployment":
			add(t, &c.deployments, name, text)
		case "v1 Service":
			add(t, &c.services, name, text)
		case "v1 ConfigMap":
			add(t, &c.configs, name, text)
		case "v1 Secret":
			add(t, &c.secrets, name, text)
		case "policy/v1 PodDisruptionBudget":
			add(t, &c.budgets, name, text)
		case "autoscaling/v2 HorizontalPodAutoscaler":
			add(t, &c.scalers, name, text)
		case "networking.k8s.io/v1 NetworkPolicy":
			add(t, &c.policies, name, text)
		default:
			t.Errorf("no test checks a %s", id)
		}
	}
	return c
}

func add[T any](t *testing.T, to *map[string]*T, name string, text []byte) {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if *to == nil {
		*to = map[string]*T{}
	}
	(*to)[name] = object
}

// only returns the template of the one deployment that a selector finds.
func (c *cluster) only(t *testing.T, what string, selector *meta.LabelSelector) *core.PodTemplateSpec {
	t.Helper()
	chosen, err := meta.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	var found []*core.PodTemplateSpec
	for _, deployment := range c.deployments {
		if !chosen.Empty() && chosen.Matches(labels.Set(deployment.Spec.Template.Labels)) {
			found = append(found, &deployment.Spec.Template)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s finds the pods of %d deployments", what, len(found))
	}
	return found[0]
}

// hasPort reports whether a container of the pod has a port of this name.
func hasPort(pod *core.PodTemplateSpec, port intstr.IntOrString) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c core.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == port.StrVal })
	})
}

func TestKubernetesHasAllThatItNames(t *testing.T) {
	c := buildCluster(t)
	got := []int{len(c.deployments), len(c.services), len(c.budgets), len(c.scalers), len(c.policies), len(c.secrets)}
	if want := []int{2, 3, 2, 1, 1, 1}; !slices.Equal(got, want) {
		t.Fatalf("%d objects of each kind, want %d", got, want)
	}
	for name, d := range c.deployments {
		if c.only(t, name, d.Spec.Selector) != &d.Spec.Template {
			t.Errorf("%s selects other pods", name)
		}
		for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
			c.only(t, "the spread of "+name, spread.LabelSelector)
		}
		c.checkVolumes(t, name, d.Spec.Template.Spec)
	}
	for name, s := range c.services {
		pod := c.only(t, "service "+name, &meta.LabelSelector{MatchLabels: s.Spec.Selector})
		for _, port := range s.Spec.Ports {
			if !hasPort(pod, port.TargetPort) {
				t.Errorf("service %s: no container has the port %s", name, port.TargetPort.String())
			}
		}
	}
	for name, b := range c.budgets {
		c.only(t, "budget "+name, b.Spec.Selector)
		if most := b.Spec.MaxUnavailable; most == nil || most.IntValue() != 1 {
			t.Errorf("budget %s: %+v", name, b.Spec)
		}
	}
	for name, s := range c.scalers {
		d := c.deployments[s.Spec.ScaleTargetRef.Name]
		if d == nil || s.Spec.MinReplicas == nil {
			t.Fatalf("scaler %s: %+v", name, s.Spec)
		}
		hold(t, "scaler "+name, map[string]bool{
			"it scales a deployment":            s.Spec.ScaleTargetRef.Kind == "Deployment",
			"the deployment fixes no number":    d.Spec.Replicas == nil,
			"there are at least two":            *s.Spec.MinReplicas >= 2,
			"it may add instances":              s.Spec.MaxReplicas > *s.Spec.MinReplicas,
			"the load is relative to a request": !d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().IsZero(),
		})
	}
	for name, p := range c.policies {
		guarded := c.only(t, "policy "+name, &p.Spec.PodSelector)
		for _, rule := range p.Spec.Ingress {
			for _, port := range rule.Ports {
				if !hasPort(guarded, *port.Port) {
					t.Errorf("policy %s: no port %s", name, port.Port.String())
				}
			}
			for _, peer := range rule.From {
				if peer.PodSelector != nil {
					c.only(t, "a peer of policy "+name, peer.PodSelector)
				}
			}
		}
	}
}

// fromElsewhere maps the secrets that are made by others to their keys.
var fromElsewhere = map[string][]string{"flashsale-tls": {"tls.crt", "tls.key"}}

// checkVolumes checks that each mount has a volume, each volume a mount and a source, and each source the keys.
func (c *cluster) checkVolumes(t *testing.T, name string, pod core.PodSpec) {
	t.Helper()
	keys := map[string][]string{} // by volume; nil: any file
	for _, v := range pod.Volumes {
		keys[v.Name] = nil
		switch {
		case v.ConfigMap != nil:
			config, ok := c.configs[v.ConfigMap.Name]
			if !ok {
				t.Fatalf("%s: the config map %s is missing", name, v.ConfigMap.Name)
			}
			keys[v.Name] = slices.Collect(maps.Keys(config.Data))
		case v.Secret != nil:
			for _, item := range v.Secret.Items {
				if !slices.Contains(fromElsewhere[v.Secret.SecretName], item.Key) {
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
			t.Errorf("the port %s is not the port of %s=%s", port, setting, env[setting])
		}
	}

	routes := read(t, "web/openapi.yaml") // which a test compares with the router
	for path, probe := range map[string]*core.Probe{"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != "http" ||
			!strings.Contains(routes, "\n  "+path+":\n") {
			t.Errorf("%s is asked by %+v", path, probe)
		}
	}
	start := container.StartupProbe
	if start == nil || start.HTTPGet.Path != "/healthz" || start.PeriodSeconds*start.FailureThreshold < 60 {
		t.Errorf("start: %+v", start)
	}
	needed := longestStop + time.Duration(container.Lifecycle.PreStop.Sleep.Seconds)*time.Second
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < needed {
		t.Errorf("an instance is killed after %s, and needs %s", grace, needed)
	}
	connections := fmt.Sprintf("%d connections", 32*c.scalers["flashsale"].Spec.MaxReplicas)
	if !strings.Contains(read(t, "docs/deploy.md"), connections) {
		t.Errorf("docs/deploy.md doesn't say that MySQL needs %s", connections)
	}
}

func TestKubernetesPodsAreShut(t *testing.T) {
	composed := mustLoad(t, "scale").Services["nginx"].Image
	for name, d := range buildCluster(t).deployments {
		pod := d.Spec.Template.Spec
		user := pod.SecurityContext
		hold(t, name, map[string]bool{
			"it does not run as root":   user != nil && is(user.RunAsNonRoot, true) && user.RunAsUser != nil && *user.RunAsUser != 0,
			"system calls are filtered": user != nil && user.SeccompProfile != nil,
			"it has no API token":       is(pod.AutomountServiceAccountToken, false),
			"it has no service links":   is(pod.EnableServiceLinks, false),
		})
		for _, container := range pod.Containers {
			s := container.SecurityContext
			hold(t, name+" "+container.Image, map[string]bool{
				"its files are read-only":    s != nil && is(s.ReadOnlyRootFilesystem, true),
				"it gains no privileges":     s != nil && is(s.AllowPrivilegeEscalation, false),
				"it has no capabilities":     s != nil && slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}),
				"memory is limited":          !container.Resources.Limits.Memory().IsZero(),
				"memory is requested":        !container.Resources.Requests.Memory().IsZero(),
				"the image is pinned":        pinned(container.Image),
				"nginx's image is Compose's": name != "flashsale-nginx" || container.Image == composed,
				"its health is checked":      container.LivenessProbe != nil && container.ReadinessProbe != nil,
			})
		}
	}
}

// Each file that nginx includes is mounted at the included path.
func TestKubernetesNginxHasItsFiles(t *testing.T) {
	c := buildCluster(t)
	pod := c.deployments["flashsale-nginx"].Spec.Template.Spec
	data := map[string]map[string]string{} // of config maps, by volume
	for _, v := range pod.Volumes {
		if v.ConfigMap != nil {
			data[v.Name] = c.configs[v.ConfigMap.Name].Data
		}
	}
	files := map[string]string{} // by path below /etc/nginx
	for _, m := range pod.Containers[0].VolumeMounts {
		at := strings.TrimPrefix(m.MountPath, "/etc/nginx/")
		if m.SubPath != "" {
			files[at] = data[m.Name][m.SubPath]
			continue
		}
		for key, text := range data[m.Name] {
			files[at+"/"+key] = text
		}
	}
	checked := 0
	for path, text := range files {
		for _, match := range regexp.MustCompile(`(?m)^\s*include (\S+);`).FindAllStringSubmatch(text, -1) {
			checked++
			if files[match[1]] == "" {
				t.Errorf("%s includes %s, which is missing", path, match[1])
			}
		}
	}
	if checked < 8 {
		t.Errorf("only %d files are included", checked)
	}
	if !strings.Contains(files["instances.conf"], "server flashsale:80 ") || c.services["flashsale"].Spec.Ports[0].Port != 80 {
		t.Errorf("nginx sends requests to %q", files["instances.conf"])
	}
}
