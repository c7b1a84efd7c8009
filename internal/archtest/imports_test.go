package archtest

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arrows is the picture of the program: which packages of ours each package may
// import, and why no more. Code of tests may import anything of ours that is not
// restricted below, because a test stands outside.
var arrows = []struct {
	from   string
	to     []string
	reason string
}{
	{"internal/sandbox", nil, "the vocabulary: everybody speaks in it, so it depends on nobody"},
	{"internal/snapfile", nil, "a format: the daemon and the sentry share it and nothing else about memory"},
	{"internal/cowfs", []string{"internal/erofs"}, "files in pages: it knows neither gVisor nor what a sandbox is, so that the daemon reads what the sentry writes"},
	{"internal/textdiff", nil, "an algorithm: it does not know where texts come from"},
	{"internal/merge", []string{"internal/textdiff"}, "plans only: it knows neither how trees are stored nor what a sandbox is, so that it is tested on trees in memory"},
	{"internal/erofs", nil, "a format: it knows no archive and no store"},
	{"internal/guestinit", nil, "a constant: one program"},
	{"internal/control", nil, "words between a guest and the daemon; the guest's command is linked with it and stays small"},
	{"internal/interp", nil, "programs of the guest and what they say; who carries it is not its business"},
	{"internal/sentrybin", nil, "it does not know what the program does that it carries"},
	{"internal/peer", nil, "the ends of connections; what is said on them is not its business"},
	{"internal/hostuse", nil, "a measuring instrument must not depend on what it measures"},
	{"internal/idlepoll", []string{"internal/sandbox"}, "it is told that there is a request, not of what"},
	{"internal/archtest", nil, "it reads source text only"},

	{"internal/wire", []string{"internal/interp", "internal/sandbox", "internal/snapfile"}, "the host side and the sentry meet here only"},
	{"internal/paths", []string{"internal/sandbox"}, "it names places and reads nothing there"},
	{"internal/hostuser", nil, "numbers that are free; who takes them is not its business"},
	{"internal/cgroup", []string{"internal/sandbox"}, "it does not know what runs in a group"},
	{"internal/access", []string{"internal/sandbox"}, "who may see what; it knows neither the things nor how requests reach it"},
	{"internal/alarm", nil, "times and ids; what becomes due is not its business"},
	{"internal/alarm/alarmtest", nil, "a clock for tests"},
	{"internal/answers", []string{"internal/httpapi", "internal/sandbox", "internal/store"}, "what was answered; what was asked is not its business"},
	{"internal/audit", []string{"internal/access", "internal/sandbox"}, "lines and their chain; it must never see what was in requests"},
	{"internal/quota", []string{"internal/sandbox", "internal/store"}, "accounts; what they count is not its business"},
	{"internal/token", []string{"internal/access", "internal/httpwire", "internal/sandbox", "internal/store"}, "it says who has a secret; what they see is not its business"},
	{"internal/feed", []string{"internal/sandbox"}, "a ring with readers; what an event means is not its business"},
	{"internal/store", []string{"internal/sandbox"}, "documents are opaque to it"},
	{"internal/tracing", []string{"internal/sandbox"}, "it is told what happens; who does it is not its business"},
	{"internal/metrics", []string{"internal/sandbox"}, "it is told what happens; who does it is not its business"},
	{"internal/portproxy", []string{"internal/access", "internal/httpwire", "internal/sandbox"}, "headers, hosts and who was let in; it opens no connection and knows no route"},
	{"internal/httpwire", []string{"internal/sandbox"}, "what server and client agree on; it knows neither"},

	{"internal/pack", []string{"internal/cowfs", "internal/erofs"}, "files in, archives out: it knows neither what a sandbox nor what an image store is"},
	{"internal/image", []string{"internal/erofs", "internal/sandbox"}, "it does not know what a sandbox is made of, or which images run"},
	{"internal/debian", []string{"internal/sandbox"}, "it makes a tar stream; who stores it is not its business"},
	{"internal/doctor", []string{"internal/cgroup", "internal/hostuser", "internal/idlepoll"}, "it tries the machine, not the daemon"},

	{"internal/launch", []string{"internal/cgroup", "internal/hostuser", "internal/interp", "internal/sandbox", "internal/tracing", "internal/wire"}, "it must never link gVisor, nor know names, lineage or images"},
	{"internal/manager", []string{
		"internal/access", "internal/alarm", "internal/answers", "internal/audit", "internal/cgroup", "internal/control", "internal/cowfs", "internal/debian", "internal/feed", "internal/hostuse", "internal/httpapi", "internal/image", "internal/interp", "internal/launch", "internal/pack", "internal/paths", "internal/quota",
		"internal/merge", "internal/sandbox", "internal/snapfile", "internal/store", "internal/textdiff", "internal/token", "internal/wire",
	}, "the use cases; it implements httpapi.Service and must never link gVisor, so that daemon code is tested without it"},

	{"internal/httpapi", []string{"internal/access", "internal/audit", "internal/httpwire", "internal/peer", "internal/portproxy", "internal/sandbox"}, "it declares the Service it needs and knows none"},
	{"internal/httpapi/apitest", []string{"internal/access", "internal/httpapi", "internal/sandbox"}, "a service for tests"},
	{"internal/workload/fakedaemon", []string{"internal/client", "internal/httpapi", "internal/httpapi/apitest", "internal/httpwire", "internal/sandbox", "internal/workload"}, "a daemon for tests"},
	{"internal/client", []string{"internal/httpwire", "internal/peer", "internal/sandbox"}, "how a daemon is found or started is not its business"},
	{"internal/daemon", []string{"internal/access", "internal/client", "internal/httpapi", "internal/httpwire", "internal/paths", "internal/portproxy", "internal/sandbox"}, "it must never know what a Service does"},
	{"internal/cli", []string{"internal/client", "internal/httpwire", "internal/peer", "internal/sandbox"}, "the command line is a client like any other: what it can do, REST can do"},
	{"internal/workload", []string{"internal/client", "internal/sandbox"}, "it finds out what any user of the client could"},
	{"internal/demo", []string{"internal/client", "internal/sandbox", "internal/workload"}, "it shows what any user of the client can do"},
	{"internal/bench", []string{"internal/client", "internal/hostuse", "internal/sandbox", "internal/workload"}, "it measures as a user would; it must not ask the engine"},

	{"internal/sentry", []string{"internal/interp", "internal/sandbox", "internal/sentry/guest", "internal/sentry/selffork", "internal/wire"}, "the confined side: short enough to be audited alone"},
	{"internal/sentry/guest", []string{"internal/control", "internal/guestinit", "internal/interp", "internal/sandbox", "internal/sentry/brief", "internal/sentry/cow", "internal/sentry/fpstate", "internal/sentry/limitfs", "internal/sentry/reseed", "internal/sentry/rootfs", "internal/cowfs", "internal/snapfile", "internal/wire"}, "the confined side; how calls reach it is not its business"},
	{"internal/sentry/selffork", nil, "a process and its threads: it does not know what they do, nor gVisor"},
	{"internal/sentry/brief", nil, "when the platform pays ahead: it does not know what a sandbox is"},
	{"internal/sentry/cow", []string{"internal/snapfile"}, "memory only: it does not know what a sandbox is"},
	{"internal/sentry/fpstate", nil, "registers only: it does not know what a sandbox is"},
	{"internal/sentry/limitfs", nil, "numbers to show: it does not know what a sandbox is"},
	{"internal/sentry/reseed", nil, "random generators of programs: it does not know what a sandbox is"},
	{"internal/sentry/rootfs", []string{"internal/cowfs"}, "files only: it does not know what a sandbox is"},

	{"cmd/ramet", []string{
		"internal/bench", "internal/cli", "internal/client", "internal/daemon", "internal/demo", "internal/doctor", "internal/httpapi",
		"internal/httpwire", "internal/idlepoll", "internal/manager", "internal/metrics", "internal/paths", "internal/sandbox", "internal/sentrybin", "internal/tracing", "internal/workload",
	}, "the composition root; it must never link gVisor: the sentry is a program of its own, embedded"},
	{"cmd/ramet-sentry", []string{"internal/sentry"}, "it starts for every sandbox, so it links nothing that a sandbox does not need"},
	{"cmd/ramet-guest", []string{"internal/control"}, "it runs inside of sandboxes, as a stranger's program"},
	{"test/integration", nil, "tests only"},
	{"test/restapi", nil, "tests only, of the daemon as others see it"},
	{"test/integration/guest", nil, "it runs inside of a sandbox, as a stranger's program"},
}

// testSupport are the packages that exist for the tests of others.
var testSupport = []string{"internal/httpapi/apitest", "internal/workload/fakedaemon"}

// restricted are imports that few may have: a path, or all below it. Tests are
// held to it too.
var restricted = []struct {
	path   string
	users  []string // directories, with all below them
	tests  []string // directories whose tests may besides
	reason string
}{
	{"gvisor.dev/gvisor", []string{"internal/sentry"}, []string{"internal/erofs", "internal/image"},
		"a change of gVisor must reach one tree only; the tests of images use its reader as an oracle"},
	{module + "/internal/sentry", []string{"internal/sentry", "cmd/ramet-sentry"}, []string{"test"},
		"the daemon and the sentry meet in package wire only; tests let their own binary be a sentry"},
	{module + "/internal/httpapi/apitest", testSupport, []string{"."}, "a service made for tests must never be served"},
	{module + "/internal/workload/fakedaemon", nil, []string{"."}, "a daemon made for tests must never be served"},
	{"modernc.org/sqlite", []string{"internal/store"}, []string{"test"}, "how records are kept is known in one place"},
	{"database/sql", []string{"internal/store"}, []string{"test"}, "how records are kept is known in one place; tests look from outside"},
	{"github.com/danielgtaylor/huma", []string{"internal/httpapi"}, nil, "the REST framework can be replaced in one package"},
	{"github.com/prometheus", []string{"internal/metrics"}, nil, "what is counted is known in many places, how it is read in one"},
	{"go.opentelemetry.io", []string{"internal/tracing"}, nil, "how traces are made is known in one place"},
	{"github.com/chromedp", nil, []string{"internal/httpapi"}, "a browser is for tests"},
	{"github.com/spf13/cobra", []string{"internal/cli"}, nil, "the command line framework can be replaced in one package"},
	{"github.com/google/go-containerregistry", []string{"internal/image"}, nil, "registries and archives are known in one place"},
	{"github.com/ProtonMail/go-crypto", []string{"internal/debian"}, nil, "signatures are checked in one place"},
	{"testing", testSupport, []string{"."}, "test code is not for the product"},
	{"math/rand", nil, nil, "the generator of the old package can be seeded by accident: use math/rand/v2 or crypto/rand"},
	{"io/ioutil", nil, nil, "it is deprecated"},
	{"log", nil, []string{"internal/image"}, "use log/slog, with a logger that was passed in"},
	{"net/http/pprof", nil, nil, "it serves the state of the daemon to whoever reaches its mux"},
	{"C", nil, nil, "the product is built with CGO_ENABLED=0, see package integration"},
}

// within reports whether dir is one of dirs or below one.
func within(dir string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return d == "." || dir == d || strings.HasPrefix(dir, d+"/")
	})
}

// importFaults returns what is wrong with one import of a file.
func importFaults(file, imported string) []string {
	dir, isTest := path.Dir(file), strings.HasSuffix(file, "_test.go")
	var faults []string
	for _, r := range restricted {
		if imported != r.path && (!strings.HasPrefix(imported, r.path+"/") || r.path == "log") {
			continue
		}
		if r.path == "math/rand" && imported != r.path || r.path == "testing" && imported != r.path {
			continue // math/rand/v2, testing/iotest
		}
		if !within(dir, r.users) && !(isTest && within(dir, r.tests)) {
			faults = append(faults, "must not import "+imported+": "+r.reason)
		}
	}
	ours, isOurs := strings.CutPrefix(imported, module+"/")
	if !isOurs || isTest {
		return faults
	}
	for _, a := range arrows {
		if a.from == dir && !slices.Contains(a.to, ours) {
			faults = append(faults, "must not import "+ours+": "+a.reason)
		}
	}
	return faults
}

func TestImports(t *testing.T) {
	known := map[string]bool{}
	for _, a := range arrows {
		known[a.from] = true
	}
	for _, s := range goFiles(t) {
		if !s.isTest() && !known[s.dir] {
			t.Errorf("package %s is not in the picture: add it to arrows, with what it may import and why no more", s.dir)
			known[s.dir] = true // once is enough
		}
		for _, spec := range s.ast.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range importFaults(s.file, imported) {
				t.Errorf("%s %s", s.at(spec), fault)
			}
		}
	}
}

// TestSentriesDoNotLinkHTTP follows the imports of ours that a sentry is made of: what
// one of them links, each sandbox starts.
func TestSentriesDoNotLinkHTTP(t *testing.T) {
	files := map[string][]*source{}
	for _, s := range goFiles(t) {
		if !s.isTest() {
			files[s.dir] = append(files[s.dir], s)
		}
	}
	seen := map[string]bool{}
	var visit func(dir string)
	visit = func(dir string) {
		if seen[dir] {
			return
		}
		seen[dir] = true
		for _, s := range files[dir] {
			for _, spec := range s.ast.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if imported == "net/http" {
					t.Errorf("%s must not import net/http: every sentry would link and initialize it", s.at(spec))
				}
				if ours, isOurs := strings.CutPrefix(imported, module+"/"); isOurs {
					visit(ours)
				}
			}
		}
	}
	visit("cmd/ramet-sentry")
	if !seen["internal/sandbox"] {
		t.Error("internal/sandbox was not found among the packages of a sentry")
	}
}

// TestArrowsHaveNoCycles keeps the table itself honest: the compiler sees the
// arrows that are used, not those that are allowed.
func TestArrowsHaveNoCycles(t *testing.T) {
	to := map[string][]string{}
	for _, a := range arrows {
		if _, twice := to[a.from]; twice {
			t.Errorf("%s is in the table twice", a.from)
		}
		if a.reason == "" {
			t.Errorf("%s has no reason", a.from)
		}
		to[a.from] = a.to
	}
	const entered, left = 1, 2
	state := map[string]int{}
	var visit func(string)
	visit = func(p string) {
		if state[p] == entered {
			t.Errorf("%s can import itself", p)
		}
		if state[p] != 0 {
			return
		}
		state[p] = entered
		for _, q := range to[p] {
			if _, ok := to[q]; !ok {
				t.Errorf("%s may import %s, which is not in the table", p, q)
			}
			visit(q)
		}
		state[p] = left
	}
	for _, a := range arrows {
		visit(a.from)
	}
}

func TestImportFaultsAreFound(t *testing.T) {
	for _, c := range []struct {
		file, imported string
		faults         int
	}{
		{"internal/cli/x.go", module + "/internal/manager", 1},
		{"internal/cli/x.go", module + "/internal/client", 0},
		{"internal/cli/x_test.go", module + "/internal/httpapi/apitest", 0},
		{"internal/daemon/x.go", module + "/internal/httpapi/apitest", 2},
		{"internal/manager/x.go", module + "/internal/sentry", 2},
		{"internal/manager/x_test.go", module + "/internal/sentry", 1},
		{"internal/manager/x.go", "gvisor.dev/gvisor/pkg/log", 1},
		{"internal/sentry/cow/x.go", "gvisor.dev/gvisor/pkg/log", 0},
		{"internal/erofs/x_test.go", "gvisor.dev/gvisor/pkg/erofs", 0},
		{"internal/erofs/x.go", "gvisor.dev/gvisor/pkg/erofs", 1},
		{"test/integration/x_test.go", module + "/internal/sentry", 0},
		{"internal/wire/x.go", "math/rand/v2", 0},
		{"internal/wire/x.go", "math/rand", 1},
		{"internal/wire/x.go", "log/slog", 0},
		{"internal/wire/x.go", "log", 1},
		{"internal/wire/x.go", "testing", 1},
		{"internal/wire/x_test.go", "testing/iotest", 0},
	} {
		if got := importFaults(c.file, c.imported); len(got) != c.faults {
			t.Errorf("%s importing %s: %q, want %d faults", c.file, c.imported, got, c.faults)
		}
	}
}
