package programs

import (
	"context"
	_ "embed"
	"fmt"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/workload"
)

// Program is one of them.
type Program struct {
	Name     string
	Packages []string
	// Children are the numbers of children to measure.
	Children []int

	files map[string]string // in /srv
	// start starts it and ends when it is ready. It is run by root.
	start string
	// answer asks it something, and fails if it is not ready or the answer is wrong.
	answer string
}

// The files of the programs.
var (
	//go:embed chromium.py
	chromiumDriver string
	//go:embed Threads.java
	threads string
	//go:embed objects.py
	objects string
)

// atPort asks what listens at a port, which says something to whoever connects.
func atPort(port int, want string) string {
	return fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%d && read -r line <&3 && [ "$line" = "%s" ]`, port, want)
}

// All returns all programs.
func All() []Program {
	all := []Program{
		{
			Name: "chromium", Packages: []string{"chromium", "python3", "python3-websocket"}, Children: []int{1, 5},
			files: map[string]string{"driver.py": chromiumDriver, "page.html": "<title>Shop</title><body>A page"},
			start: `setsid chromium --headless --no-sandbox --disable-gpu --remote-debugging-port=9222 --user-data-dir=/tmp/profile file:///srv/page.html >/tmp/chromium.log 2>&1 &
setsid python3 /srv/driver.py >/tmp/driver.log 2>&1 &`,
			answer: atPort(9300, "Shop"),
		},
		{
			Name: "postgres", Packages: []string{"postgresql", "postgresql-contrib"}, Children: []int{1, 5},
			start: `bin=$(ls -d /usr/lib/postgresql/*/bin)
runuser -u postgres -- pg_ctlcluster "$(pg_lsclusters --no-header | cut -d' ' -f1)" main start
runuser -u postgres -- "$bin/pgbench" --initialize --scale=2 --quiet postgres >/tmp/init.log 2>&1
setsid runuser -u postgres -- "$bin/pgbench" --client=50 --jobs=2 --time=3600 postgres >/tmp/load.log 2>&1 &
until [ "$(runuser -u postgres -- psql -tAc "select count(*) from pg_stat_activity where application_name = 'pgbench'")" = 50 ]; do sleep 0.1; done`,
			answer: `[ "$(runuser -u postgres -- psql -tAc 'select 6 * 7')" = 42 ]`,
		},
		{
			Name: "jvm", Packages: []string{"default-jdk-headless"}, Children: []int{1, 5},
			files:  map[string]string{"Threads.java": threads},
			start:  `setsid java /srv/Threads.java 200 9400 >/tmp/java.log 2>&1 &`,
			answer: atPort(9400, "200"),
		},
	}
	for _, kind := range []string{"maps", "memfds", "pairs"} {
		all = append(all, Program{
			Name: "objects-" + kind, Packages: []string{"python3"}, Children: []int{1},
			files:  map[string]string{"objects.py": objects},
			start:  `setsid python3 /srv/objects.py ` + kind + ` 20000 9500 >/tmp/objects.log 2>&1 &`,
			answer: atPort(9500, "20000"),
		})
	}
	return all
}

// memoryMiB is the limit of a sandbox with a program.
const memoryMiB = 4096

// Create makes a sandbox with the program's files, in which it does not run yet.
func (p *Program) Create(ctx context.Context, c *client.Client, s *workload.Session, progress func(api.Progress)) (ref string, err error) {
	image := "bench-" + p.Name
	_, err = c.Images.Create(ctx, api.ImageRequest{Name: image, Build: &api.ImageBuild{From: "debian", Include: p.Packages}, IfMissing: true}, progress)
	if err != nil {
		return "", fmt.Errorf("build image %s: %w", image, err)
	}
	sb, err := s.CreateLimited(ctx, image, api.Limits{MemoryMiB: memoryMiB})
	if err != nil {
		return "", err
	}
	for name, text := range p.files {
		if err := s.WriteFile(ctx, sb.ID, "/srv/"+name, text); err != nil {
			return "", err
		}
	}
	return sb.ID, nil
}

// Start returns the command that starts the program and ends when it answers.
func (p *Program) Start() []string { return shell(p.start + "\n" + p.await()) }

// Init returns the command that starts the program and does not end: the first process of a container.
func (p *Program) Init() []string { return shell(p.start + "\nexec sleep infinity") }

// Await returns the command that ends when the program answers.
func (p *Program) Await() []string { return shell(p.await()) }

func (p *Program) await() string { return "until (" + p.answer + ") 2>/dev/null; do sleep 0.01; done" }

// Answer returns the command that asks the program something.
func (p *Program) Answer() []string { return shell(p.answer) }

func shell(script string) []string { return []string{"/bin/bash", "-c", script} }
