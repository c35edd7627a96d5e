package directions

import (
	"fmt"
	"go/build"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestDiagram_isTheImportGraph(t *testing.T) {
	page, err := os.ReadFile("../../../docs/design/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```mermaid\n")
	text, _, ok := strings.Cut(text, "```")
	if !ok {
		t.Fatal("the page has no diagram")
	}
	drawn, err := readDiagram(text)
	if err != nil {
		t.Fatal(err)
	}
	suites := drawn.boxes["suites"]
	imports := map[string][]string{}
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if !strings.HasPrefix(name, "examples/") && (!isForTests(p.ImportPath) || slices.Contains(suites, name)) && !strings.HasPrefix(name, "internal/test/") {
			imports[name] = own(p.Imports)
		}
	}
	const memory = "lockedmemory/belugamemory"
	for _, name := range []string{memory, memory + "/belugarunner", memory + "/internal/codes", memory + "/internal/packed",
		memory + "/internal/services", "adksession"} {
		beluga, err := build.ImportDir("../../../"+name, 0)
		if err != nil {
			t.Fatal(err)
		}
		imports[name] = own(beluga.Imports)
	}
	for _, difference := range drawn.compare(imports) {
		t.Error(difference)
	}
}

// own returns the paths that belong to this repository, without the module.
func own(paths []string) []string {
	var names []string
	for _, path := range paths {
		if name, ok := strings.CutPrefix(path, module); ok {
			names = append(names, name)
		}
	}
	return names
}

func TestDiagram_plantedDifference(t *testing.T) {
	const right = `flowchart TD
  store["store<br>store/internal/..."]
  lock["lock"]
  subgraph core
    fence["fence"]
    lease["lease"]
  end
  fence --> lease
  store --> lock & core
  lock --> core
`
	imports := map[string][]string{
		"store": {"store/internal/log", "lock", "fence"}, "store/internal/log": nil, "lock": {"lease"}, "fence": {"lease"}, "lease": nil,
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"none", "", "", ""},
		{"import without an arrow", "store --> lock & core", "store --> core", "store imports lock, but no arrow leads from store to lock"},
		{"import into the frame without an arrow", "  lock --> core\n", "", "lock imports lease, but no arrow leads from lock to core"},
		{"import inside the frame without an arrow", "  fence --> lease\n", "", "fence imports lease, but no arrow leads from fence to lease"},
		{"arrow without an import", "lock --> core", "lock --> core & store", "an arrow leads from lock to store, but no package imports along it"},
		{"reversed arrow inside the frame", "fence --> lease", "fence --> lease\n  lease --> fence", "an arrow leads from lease to fence, but no package imports along it"},
		{"package without a box", "<br>store/internal/...", "", "store/internal/log is in no box"},
		{"package in two boxes", `lock["lock"]`, `lock["lock<br>store/internal/log"]`, "store/internal/log is in two boxes"},
		{"box without a package", `lock["lock"]`, `lock["lock<br>permits"]`, "the box lock has permits, but no package has this name"},
		{"unknown line", "lock --> core", "lock -.-> core", "the diagram has an unknown line: lock -.-> core"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(right, c.old) {
				t.Fatalf("the diagram does not contain %q", c.old)
			}
			drawn, err := readDiagram(strings.Replace(right, c.old, c.new, 1))
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = strings.Join(drawn.compare(imports), "\n")
			}
			if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("differences are %q, want %q", got, c.want)
			}
		})
	}
}

// diagram is the flowchart of docs/design/architecture.md.
type diagram struct {
	boxes  map[string][]string // the packages of each box, as patterns
	inside map[string]string   // the frame around a box
	arrows map[[2]string]bool
}

var (
	box   = regexp.MustCompile(`^(\w+)\["(.+)"\]$`)
	frame = regexp.MustCompile(`^subgraph (\w+)$`)
	arrow = regexp.MustCompile(`^(\w+) --> (\w+(?: & \w+)*)$`)
)

// readDiagram reads the text of a Mermaid flowchart. It refuses lines that it does not know, so
// that no arrow escapes the comparison.
func readDiagram(text string) (diagram, error) {
	d := diagram{boxes: map[string][]string{}, inside: map[string]string{}, arrows: map[[2]string]bool{}}
	around := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if found := box.FindStringSubmatch(line); found != nil {
			d.boxes[found[1]] = strings.Split(found[2], "<br>")
			d.inside[found[1]] = around
		} else if found := frame.FindStringSubmatch(line); found != nil {
			around = found[1]
		} else if found := arrow.FindStringSubmatch(line); found != nil {
			for to := range strings.SplitSeq(found[2], " & ") {
				d.arrows[[2]string{found[1], to}] = true
			}
		} else if line == "end" {
			around = ""
		} else if line != "" && !strings.HasPrefix(line, "flowchart ") {
			return d, fmt.Errorf("the diagram has an unknown line: %s", line)
		}
	}
	return d, nil
}

// compare returns the differences between the diagram and the imports of each package. The names
// are without the module.
func (d diagram) compare(imports map[string][]string) []string {
	var differences []string
	home := map[string]string{}
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		for id, patterns := range d.boxes {
			for _, pattern := range patterns {
				if !matches([]string{pattern}, name) {
					continue
				}
				used[pattern] = true
				if home[name] != "" {
					differences = append(differences, name+" is in two boxes")
				}
				home[name] = id
			}
		}
		if home[name] == "" {
			differences = append(differences, name+" is in no box")
		}
	}
	made := map[[2]string]bool{}
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		from := home[name]
		for _, path := range imports[name] {
			to := home[path]
			if to == "" || from == "" || to == from {
				continue
			}
			if around := d.inside[to]; around != "" && d.inside[from] != around {
				to = around
			}
			made[[2]string{from, to}] = true
			if !d.arrows[[2]string{from, to}] {
				differences = append(differences, fmt.Sprintf("%s imports %s, but no arrow leads from %s to %s", name, path, from, to))
			}
		}
	}
	for pair := range d.arrows {
		if !made[pair] {
			differences = append(differences, fmt.Sprintf("an arrow leads from %s to %s, but no package imports along it", pair[0], pair[1]))
		}
	}
	for id, patterns := range d.boxes {
		for _, pattern := range patterns {
			if !used[pattern] {
				differences = append(differences, fmt.Sprintf("the box %s has %s, but no package has this name", id, pattern))
			}
		}
	}
	slices.Sort(differences)
	return differences
}
