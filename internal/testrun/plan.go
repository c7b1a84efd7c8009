package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const module = "ramet.dev/ramet/"

// asUser is the test of a suite that runs the suite again as an ordinary user, and
// envAsUser has it choose tests and print events.
const (
	asUser    = "TestOrdinaryUser"
	envAsUser = "RAMET_TEST_AS_USER"
)

// gvisor is a package that each sentry links.
const gvisor = "gvisor.dev/gvisor/pkg/sentry/kernel"

// shardTime is the time of the tests in one job of a suite.
const shardTime = 100 * time.Second

// crowded are suites of which one job runs at a time: they measure the memory and the pauses of
// many sandboxes, or fill the machine with processes.
var crowded = []string{"test/fork"}

// pkg is a package with tests.
type pkg struct {
	path, dir string // dir is relative to the repository
	sentry    bool   // its test binary becomes a sentry: built without cgo, so without the race detector
	suite     bool   // its tests also run as an ordinary user, if it has asUser
	tests     []string
}

type plan struct {
	jobs     []*job
	packages []*pkg
	race     bool
	skips    []skip
}

// makePlan lists what there is to run, and builds the suites.
func makePlan(ctx context.Context, w *workspace, o options, times times) (*plan, error) {
	packages, err := listPackages(ctx, w.top)
	if err != nil {
		return nil, err
	}
	p := &plan{packages: packages, race: true}
	if cc, err := output("go", "env", "CC"); err != nil {
		return nil, err
	} else if _, err := exec.LookPath(cc); err != nil {
		p.race = false
		p.skips = append(p.skips, skip{"race detector", "there is no C compiler: " + err.Error()})
	}
	if o.count > 0 {
		return p, nil
	}
	p.checks(o)
	p.packageJobs(o, times)
	p.suites(w, o, times)
	if o.run == nil {
		p.sdks(times)
	}
	p.jobs = slices.DeleteFunc(p.jobs, func(j *job) bool { return o.part != nil && !o.part.MatchString(j.name) })
	if len(p.jobs) == 0 {
		return nil, fmt.Errorf("no job matches -part %v -run %v", o.part, o.run)
	}
	return p, buildSuites(ctx, w, p.jobs)
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)[A-Z0-9_]\w*)\(`)

// listPackages returns the packages that have tests.
func listPackages(ctx context.Context, top string) ([]*pkg, error) {
	const form = `{{.ImportPath}}	{{.Dir}}	{{.ForTest}}	{{join .Deps ","}}	{{join .TestGoFiles ","}},{{join .XTestGoFiles ","}}`
	cmd := exec.CommandContext(ctx, "go", "list", "-test", "-f", form, "./...")
	cmd.Dir, cmd.Stderr = top, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	all := map[string]*pkg{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		path, isTest := strings.CutSuffix(f[0], ".test")
		if strings.Contains(path, " ") {
			continue // a package built for a test
		}
		p := all[path]
		if p == nil {
			p = &pkg{path: path}
			all[path] = p
		}
		if isTest {
			deps := strings.Split(f[3], ",")
			p.sentry = slices.Contains(deps, gvisor) || strings.HasSuffix(path, "/selffork") // forks itself as sentries do
			continue
		}
		if p.dir, err = filepath.Rel(top, f[1]); err != nil {
			return nil, err
		}
		for file := range strings.SplitSeq(f[4], ",") {
			if file == "" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(f[1], file))
			if err != nil {
				return nil, err
			}
			for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
				if m[1] != "TestMain" {
					p.tests = append(p.tests, m[1])
				}
			}
		}
	}
	list := slices.SortedFunc(maps.Values(all), func(a, b *pkg) int { return strings.Compare(a.path, b.path) })
	list = slices.DeleteFunc(list, func(p *pkg) bool { return len(p.tests) == 0 })
	for _, p := range list {
		p.suite = p.sentry && strings.HasPrefix(p.dir, "test/")
	}
	return list, nil
}

// checks adds the jobs that read the code.
func (p *plan) checks(o options) {
	if o.run != nil {
		return
	}
	p.jobs = append(p.jobs,
		&job{name: "go vet", command: []string{"go", "vet", "./..."}, output: lines, cost: 60 * time.Second},
		// Only the packages that have changed take time, as long as the build cache has the others.
		&job{name: "go vet arm64", command: []string{"go", "vet", "./..."}, env: []string{"GOARCH=arm64", "CGO_ENABLED=0"}, output: lines, cost: 30 * time.Second})
	if o.lint {
		p.jobs = append(p.jobs,
			&job{name: "gofmt", command: []string{"sh", "-c", `files=$(gofmt -l $(git ls-files '*.go')); [ -z "$files" ] || { echo "not formatted: $files"; exit 1; }`}, output: lines},
			&job{name: "staticcheck", command: []string{"go", "run", staticcheck, "./..."}, output: lines, cost: 90 * time.Second})
	}
}

const staticcheck = "honnef.co/go/tools/cmd/staticcheck@v0.8.2"

// packageTime is the time of the packages in one job. A package that takes longer is a job alone.
const packageTime = 40 * time.Second

// packageJobs adds the packages that are no suites, several in a job.
func (p *plan) packageJobs(o options, times times) {
	type group struct {
		packages []*pkg
		cost     time.Duration
	}
	for _, sentry := range []bool{true, false} {
		var groups []*group
		list := slices.DeleteFunc(slices.Clone(p.packages), func(k *pkg) bool {
			return k.suite || k.sentry != sentry || o.run != nil && !slices.ContainsFunc(k.tests, o.run.MatchString)
		})
		slices.SortStableFunc(list, func(a, b *pkg) int { return int(times.of(b.dir) - times.of(a.dir)) })
		for _, k := range list {
			cost := times.of(k.dir)
			at := slices.IndexFunc(groups, func(g *group) bool { return g.cost+cost <= packageTime })
			if at < 0 {
				at = len(groups)
				groups = append(groups, &group{})
			}
			groups[at].packages, groups[at].cost = append(groups[at].packages, k), groups[at].cost+cost
		}
		for i, g := range groups {
			name := g.packages[0].dir
			if n := len(g.packages); n > 1 {
				kind := map[bool]string{true: "kernel packages", false: "packages"}[sentry]
				name = fmt.Sprintf("%s %d/%d, %d from %s", kind, i+1, len(groups), n, name)
			}
			p.jobs = append(p.jobs, p.packageJob(name, g.packages, o, g.cost))
		}
	}
}

func (p *plan) packageJob(name string, packages []*pkg, o options, cost time.Duration) *job {
	command, env := []string{"go", "test", "-json", "-p", "1", "-timeout", "10m"}, []string{"CGO_ENABLED=0"}
	if p.race && !packages[0].sentry {
		// A program with the race detector waits a second at its end for races that it has not
		// reported, and tests run hundreds of programs.
		command, env = append(command, "-race"), []string{"CGO_ENABLED=1", "GORACE=atexit_sleep_ms=0"}
	}
	if o.run != nil {
		command = append(command, "-run", o.run.String())
	}
	if o.record {
		command = append(command, "-count=1")
	}
	alone := slices.Clone(command)
	for _, k := range packages {
		command = append(command, k.path)
	}
	return &job{
		name: name, command: command, env: env, cost: cost,
		choose: func(command, env, tests []string) ([]string, []string) {
			if tests[0] == "" {
				return command, env
			}
			dot := strings.LastIndex(tests[0], ".")
			return append(slices.Clone(alone), "-count=1", "-run", pattern([]string{tests[0][dot+1:]}), module+tests[0][:dot]), env
		},
		again: func(string) bool { return true },
	}
}

// suites adds the jobs of suites: their tests as root and, side by side, as an ordinary user.
func (p *plan) suites(w *workspace, o options, times times) {
	for _, k := range p.packages {
		if !k.suite {
			continue
		}
		users := []bool{false}
		if os.Geteuid() == 0 && slices.Contains(k.tests, asUser) {
			users = append(users, true)
		}
		for _, user := range users {
			tests := slices.DeleteFunc(slices.Clone(k.tests), func(t string) bool {
				return t == asUser && os.Geteuid() == 0 || o.run != nil && !o.run.MatchString(t)
			})
			cost := func(test string) time.Duration { return times.of(timeKey(k.dir, user, test)) }
			all := shards(tests, cost)
			for i, shard := range all {
				p.jobs = append(p.jobs, suiteJob(w, k, user, shard, i+1, len(all), cost))
			}
		}
	}
}

func suiteJob(w *workspace, k *pkg, user bool, tests []string, number, of int, cost func(string) time.Duration) *job {
	j := &job{
		name: k.dir, dir: k.dir, tests: tests, user: user,
		command: []string{w.test2json, "-t", "-p", k.path, w.binary(k.path), "-test.v=test2json", "-test.timeout=15m"},
		choose: func(command, env, tests []string) ([]string, []string) {
			return append(command, "-test.run="+pattern(tests)), env
		},
		again: func(string) bool { return true },
	}
	if of > 1 {
		j.name += fmt.Sprintf(" %d/%d", number, of)
	}
	if user {
		j.choose = func(command, env, tests []string) ([]string, []string) {
			return append(command, "-test.run=^"+asUser+"$"), append(env, envAsUser+"="+pattern(tests))
		}
		j.name += " as an ordinary user"
	} else if os.Geteuid() == 0 {
		j.name += " as root"
	}
	if slices.Contains(crowded, k.dir) {
		j.alone = k.dir
	}
	for _, t := range tests {
		j.cost += cost(t)
	}
	return j
}

// shards splits tests into as many groups as their time needs, each test into the group that
// is the shortest so far, the longest first.
func shards(tests []string, cost func(string) time.Duration) [][]string {
	if len(tests) == 0 {
		return nil
	}
	var total time.Duration
	for _, t := range tests {
		total += cost(t)
	}
	groups := make([][]string, max(1, min(len(tests), int((total+shardTime-1)/shardTime))))
	sums := make([]time.Duration, len(groups))
	sorted := slices.Clone(tests)
	slices.SortStableFunc(sorted, func(a, b string) int { return int(cost(b) - cost(a)) })
	for _, t := range sorted {
		least := 0
		for i := range sums {
			if sums[i] < sums[least] {
				least = i
			}
		}
		groups[least], sums[least] = append(groups[least], t), sums[least]+cost(t)
	}
	return groups
}

// sdks adds the tests of the SDKs, which are scripts.
func (p *plan) sdks(times times) {
	for name, script := range map[string][]string{
		"sdk/python":     {"sdk/python/tools/test.sh", ".cache", "bin/ramet"},
		"sdk/typescript": {"sdk/typescript/tools/test.sh"},
	} {
		p.jobs = append(p.jobs, &job{
			name: name, command: script, output: lines, cost: times.of(name),
			choose: func(command, env, tests []string) ([]string, []string) {
				return append(command, strings.TrimPrefix(tests[0], "build/")), env
			},
			again: func(test string) bool { return strings.HasPrefix(test, "tests/") || strings.HasPrefix(test, "build/") },
		})
	}
}

// buildSuites builds the test binaries of the suites that have jobs.
func buildSuites(ctx context.Context, w *workspace, jobs []*job) error {
	var packages []string
	for _, j := range jobs {
		if path := module + j.dir; j.tests != nil && !slices.Contains(packages, path) {
			packages = append(packages, path)
		}
	}
	if len(packages) == 0 {
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-c", "-o", w.dir + "/"}, packages...)...)
	cmd.Dir, cmd.Env = w.top, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the suites: %w\n%s", err, out)
	}
	return nil
}
