package check

import (
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func readCompose(t *testing.T) *types.Project {
	t.Helper()
	file, err := filepath.Abs("../../../compose.yaml")
	must(t, err)
	options, err := cli.NewProjectOptions([]string{file})
	must(t, err)
	project, err := options.LoadProject(t.Context())
	must(t, err)
	return project
}

func TestCompose_servicesAreWhole(t *testing.T) {
	project := readCompose(t)
	names := slices.Sorted(maps.Keys(project.Services))
	if want := []string{"grafana", "jaeger", "postgres", "prometheus", "redis"}; !slices.Equal(names, want) {
		t.Errorf("the services are %q, want %q", names, want)
	}
	for name, service := range project.Services {
		if service.HealthCheck == nil {
			t.Errorf("%s has no health check, so --wait does not wait for it", name)
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to other machines", name, port.Published)
			}
		}
		for _, volume := range service.Volumes {
			if info, err := os.Stat(volume.Source); err != nil || info.IsDir() || !volume.ReadOnly {
				t.Errorf("%s: %s is no file that the service only reads", name, volume.Source)
			}
		}
	}
}

// mounted returns the file of this directory that a service sees under a name.
func mounted(t *testing.T, service types.ServiceConfig, name string) string {
	t.Helper()
	for _, volume := range service.Volumes {
		if volume.Target == name {
			return volume.Source
		}
	}
	t.Fatalf("%s sees no file %s", service.Name, name)
	return ""
}

func TestCompose_prometheusFindsItsRules(t *testing.T) {
	prometheus := readCompose(t).Services["prometheus"]
	const name = "/etc/prometheus/prometheus.yml"
	if !slices.Contains(prometheus.Command, "--config.file="+name) {
		t.Errorf("the command %q does not name %s", prometheus.Command, name)
	}
	var config struct {
		Rules []string `yaml:"rule_files"`
	}
	readYAML(t, mounted(t, prometheus, name), &config)
	if len(config.Rules) == 0 {
		t.Error("the configuration names no rules")
	}
	for _, file := range config.Rules {
		mounted(t, prometheus, path.Join(path.Dir(name), file))
	}
}

func TestCompose_grafanaFindsDashboardAndSources(t *testing.T) {
	project := readCompose(t)
	grafana := project.Services["grafana"]

	var sources struct {
		Datasources []struct {
			UID, Type, URL string
			IsDefault      bool `yaml:"isDefault"`
			JSONData       struct {
				Exemplars []struct {
					Name   string
					Source string `yaml:"datasourceUid"`
				} `yaml:"exemplarTraceIdDestinations"`
			} `yaml:"jsonData"`
		}
	}
	readYAML(t, mounted(t, grafana, "/etc/grafana/provisioning/datasources/belugalock.yml"), &sources)
	kinds, linked := map[string]string{}, ""
	for _, source := range sources.Datasources {
		kinds[source.UID] = source.Type
		at, err := url.Parse(source.URL)
		must(t, err)
		service, ok := project.Services[at.Hostname()]
		if !ok || !slices.ContainsFunc(service.Ports, func(p types.ServicePortConfig) bool { return at.Port() == strconv.Itoa(int(p.Target)) }) {
			t.Errorf("%s: no service answers at %s", source.UID, source.URL)
		}
		if source.Type == "prometheus" {
			if !source.IsDefault || len(source.JSONData.Exemplars) != 1 || source.JSONData.Exemplars[0].Name != "trace_id" {
				t.Errorf("%s is not the default, or its exemplars lead nowhere", source.UID)
				continue
			}
			linked = source.JSONData.Exemplars[0].Source
		}
	}
	if kinds[linked] != "jaeger" {
		t.Errorf("exemplars lead to %q, which is no Jaeger", linked)
	}

	var provided struct {
		Providers []struct{ Options struct{ Path string } }
	}
	readYAML(t, mounted(t, grafana, "/etc/grafana/provisioning/dashboards/belugalock.yml"), &provided)
	if len(provided.Providers) != 1 {
		t.Fatalf("%d providers of dashboards, want 1", len(provided.Providers))
	}
	mounted(t, grafana, path.Join(provided.Providers[0].Options.Path, "belugalock.json"))
}
