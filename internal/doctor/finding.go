package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Status of a Finding.
type Status string

// The statuses: a sandbox cannot start with StatusFail; with StatusWarn it can,
// but something is slower, less protected or soon at its limit.
const (
	StatusOK   Status = "ok"
	StatusWarn Status = "warn"
	StatusFail Status = "fail"
)

// Finding is the result of one probe.
type Finding struct {
	// Name is stable: scripts select by it.
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Detail describes the result.
	Detail string `json:"detail"`
	// Remedy is what a person can do. Every StatusFail has one.
	Remedy string `json:"remedy,omitempty"`
}

// machine is the system that the probes read.
type machine struct {
	root    string // where proc, sys and dev are found
	dataDir string
	child   func(ctx context.Context, request childRequest) (childReply, error)
	env     func(name string) string // nil for an empty environment
	dnsPort string                   // "" for that of name servers
	arch    string                   // of the processor, as Go names it
	page    int                      // size of a page of memory
}

func (m *machine) getenv(name string) string {
	if m.env == nil {
		return ""
	}
	return m.env(name)
}

// probes are all probes in the order of the report, from those that every sandbox needs to optional
// ones.
var probes = []struct {
	name string
	run  func(context.Context, *machine) Finding
}{
	{"kernel", probeKernel},
	{"cpu", probeCPU},
	{"user_namespaces", probeUserNamespaces},
	{"own_users", probeOwnUsers},
	{"namespaces", probeNamespaces},
	{"mounts", probeMounts},
	{"namespace_limits", probeNamespaceLimits},
	{"no_new_privs", probeNoNewPrivs},
	{"seccomp", probeSeccomp},
	{"landlock", probeLandlock},
	{"ptrace", probePtrace},
	{"memfd", probeMemfd},
	{"cgroup", probeCgroup},
	{"open_files", probeOpenFiles},
	{"processes", probeProcesses},
	{"max_map_count", probeMaxMapCount},
	{"overcommit_memory", probeOvercommit},
	{"shmem_huge_pages", probeShmemHugePages},
	{"memory", probeMemory},
	{"disk", probeDisk},
	{"idle_poll", probeIdlePoll},
	{"kvm", probeKVM},
	{"resolver", probeResolver},
	{"proxy", probeProxy},
	{"ca_bundle", probeCABundle},
}

// Run probes this machine for the calling user. dataDir is the data directory of Ramet, which need
// not exist yet. Run takes some tens of milliseconds, and up to resolverTimeout if a name server
// does not answer. When ctx is done, the probes that need a child fail.
func Run(ctx context.Context, dataDir string) []Finding {
	return (&machine{dataDir: dataDir, child: runChild, env: os.Getenv, arch: runtime.GOARCH, page: os.Getpagesize()}).run(ctx)
}

func (m *machine) run(ctx context.Context) []Finding {
	out := make([]Finding, 0, len(probes)+1)
	for _, p := range probes {
		f := p.run(ctx, m)
		f.Name = p.name
		out = append(out, f)
	}
	f := sumUp(out)
	f.Name = "isolation"
	return append(out, f)
}

func ok(format string, args ...any) Finding {
	return Finding{Status: StatusOK, Detail: fmt.Sprintf(format, args...)}
}

func warn(remedy, format string, args ...any) Finding {
	return Finding{Status: StatusWarn, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

func fail(remedy, format string, args ...any) Finding {
	return Finding{Status: StatusFail, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

func (m *machine) path(name string) string { return filepath.Join(m.root, "/", name) }

// text returns the content of a file below the root without space around it.
func (m *machine) text(name string) (string, error) {
	b, err := os.ReadFile(m.path(name))
	return strings.TrimSpace(string(b)), err
}

// number returns the number that a file below the root holds.
func (m *machine) number(name string) (int64, error) {
	s, err := m.text(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(s, 10, 64)
}
