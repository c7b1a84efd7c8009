package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/engine/cgroup"
	"ramet.dev/ramet/internal/engine/confinement"
)

// minKernel has pidfd_open, the last of the required calls.
var minKernel = [2]int{5, 3}

// fsgsbaseKernel is the first that lets programs use the fsgsbase instructions.
var fsgsbaseKernel = [2]int{5, 9}

// pointerKeysKernel is the first that lets arm64 programs do without pointer authentication.
var pointerKeysKernel = [2]int{5, 13}

const (
	// A sandbox takes some tens of descriptors in the daemon and in its own
	// process, more with every fork above it: one per ancestor's memory file.
	wantedFiles, minFiles = 4096, 256
	// A sandbox takes some twenty host tasks, and a few more for each CPU it uses.
	wantedTasks, minTasks = 4096, 128
	// wantedMaps is the kernel's own default.
	wantedMaps = 65530
)

func probeKernel(_ context.Context, m *machine) Finding {
	release, err := m.text("proc/sys/kernel/osrelease")
	if err != nil {
		return fail("mount /proc", "the kernel's version is unknown: %v", err)
	}
	if strings.HasSuffix(release, "-gvisor") || confinement.InGVisor() {
		return fail("run ramet outside of it", "this is gVisor's kernel, in which sandboxes cannot run")
	}
	v, err := parseRelease(release)
	if err != nil {
		return warn(fmt.Sprintf("make sure that it is Linux %d.%d or newer", minKernel[0], minKernel[1]), "%v", err)
	}
	if slices.Compare(v[:], minKernel[:]) < 0 {
		return fail(fmt.Sprintf("use Linux %d.%d or newer", minKernel[0], minKernel[1]), "Linux %s", release)
	}
	return ok("Linux %s", release)
}

// parseRelease returns major and minor of a release such as "6.1.0-18-amd64".
func parseRelease(release string) (v [2]int, err error) {
	fields := strings.SplitN(release, ".", 3)
	if len(fields) < 2 {
		return v, fmt.Errorf("kernel release %q has no minor version", release)
	}
	for i := range v {
		digits := fields[i]
		if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
			digits = digits[:end]
		}
		if v[i], err = strconv.Atoi(digits); err != nil {
			return v, fmt.Errorf("read kernel release %q: %w", release, err)
		}
	}
	return v, nil
}

func probeCPU(_ context.Context, m *machine) Finding {
	switch reason := confinement.WhyNoPages(m.page); {
	case reason != "":
		return fail("boot a kernel with pages of 4 KiB", "%s", reason)
	case m.arch == "arm64":
		return judgeARM(m)
	case m.arch != "amd64":
		return fail("use an x86-64 or arm64 machine", "sandboxes run on x86-64 and arm64 only, this is %s", m.arch)
	}
	info, err := m.text("proc/cpuinfo")
	if err != nil {
		return warn("mount /proc", "the processor's features are unknown: %v", err)
	}
	flags := cpuFlags(info)
	if !m.kernelAtLeast(fsgsbaseKernel) { // older kernels list it, but forbid its use
		flags = slices.DeleteFunc(flags, func(f string) bool { return f == "fsgsbase" })
	}
	var has, lacks []string
	for _, f := range []string{"fsgsbase", "xsave", "xsaveopt"} {
		if slices.Contains(flags, f) {
			has = append(has, f)
		} else {
			lacks = append(lacks, f)
		}
	}
	if lacks != nil {
		// The stubs then fall back on arch_prctl and fxsave; the latter keeps no
		// vector registers beyond SSE, so the guest is told that there are none.
		return warn("use a newer processor, or let the hypervisor pass these features on; fsgsbase also needs Linux 5.9",
			"switching between sandbox processes is slower or vector instructions are hidden without: %s", strings.Join(lacks, ", "))
	}
	return ok("%s with %s", m.arch, strings.Join(has, ", "))
}

// judgeARM judges an arm64 processor.
func judgeARM(m *machine) Finding {
	info, _ := m.text("proc/cpuinfo")
	if slices.Contains(cpuFlags(info), "paca") && !m.kernelAtLeast(pointerKeysKernel) {
		return warn("use Linux 5.13 or newer", "this kernel cannot turn off pointer authentication: programs that use it fail when another daemon restores them")
	}
	return ok("arm64 with pages of 4 KiB")
}

func (m *machine) kernelAtLeast(want [2]int) bool {
	release, err := m.text("proc/sys/kernel/osrelease")
	if err != nil {
		return false
	}
	v, err := parseRelease(release)
	return err == nil && slices.Compare(v[:], want[:]) >= 0
}

// cpuFlags returns the features of the first processor in cpuinfo.
func cpuFlags(info string) []string {
	for line := range strings.Lines(info) {
		key, value, _ := strings.Cut(line, ":")
		if key = strings.TrimSpace(key); key == "flags" || key == "Features" {
			return strings.Fields(value)
		}
	}
	return nil
}

func probeCgroup(_ context.Context, m *machine) Finding {
	h, err := cgroup.Detect(cgroup.Options{Root: m.root})
	var unavailable *cgroup.UnavailableError
	switch {
	case errors.As(err, &unavailable):
		return warn(unavailable.Remedy, "limits of memory, CPU and processes cannot be enforced by the kernel: %s", unavailable.Reason)
	case err != nil:
		return warn("check that /proc is mounted and readable", "%v", err)
	}
	return ok("cgroup %s", h.Kind())
}

func probeOpenFiles(context.Context, *machine) Finding {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return warn("allow getrlimit", "the limit of open files is unknown: %v", err)
	}
	// The hard limit counts: the Go runtime raises the soft one to it.
	return judgeOpenFiles(l.Max)
}

func judgeOpenFiles(n uint64) Finding {
	remedy := "raise the limit: LimitNOFILE=65536 in the service, or `nofile` in /etc/security/limits.conf"
	switch {
	case n < minFiles:
		return fail(remedy, "only %d open files are allowed", n)
	case n < wantedFiles:
		return warn(remedy, "only %d open files are allowed, enough for few sandboxes", n)
	}
	return ok("%s open files", limitText(n))
}

func probeProcesses(context.Context, *machine) Finding {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &l); err != nil {
		return warn("allow getrlimit", "the limit of processes is unknown: %v", err)
	}
	return judgeProcesses(l.Cur, os.Geteuid() == 0)
}

// judgeProcesses judges the soft limit, which nothing raises.
func judgeProcesses(n uint64, root bool) Finding {
	remedy := "raise the limit: LimitNPROC=65536 in the service, or `nproc` in /etc/security/limits.conf"
	switch {
	case root:
		return ok("%s, not enforced for root", limitText(n))
	case n < minTasks:
		return fail(remedy, "only %d processes and threads are allowed to this user", n)
	case n < wantedTasks:
		return warn(remedy, "only %d processes and threads are allowed to this user, enough for few sandboxes", n)
	}
	return ok("%s processes and threads", limitText(n))
}

func limitText(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}

func probeMaxMapCount(_ context.Context, m *machine) Finding {
	remedy := "as root: sysctl -w vm.max_map_count=262144, and keep it in /etc/sysctl.d"
	n, err := m.number("proc/sys/vm/max_map_count")
	switch {
	case err != nil:
		return warn("mount /proc", "vm.max_map_count is unknown: %v", err)
	case n < wantedMaps:
		return warn(remedy, "vm.max_map_count is %d; forks of large, fragmented processes need more mappings", n)
	}
	return ok("%d mappings per process", n)
}

func probeOvercommit(_ context.Context, m *machine) Finding {
	n, err := m.number("proc/sys/vm/overcommit_memory")
	switch {
	case err != nil:
		return warn("mount /proc", "vm.overcommit_memory is unknown: %v", err)
	case n == 2:
		return warn("as root: sysctl -w vm.overcommit_memory=0, and keep it in /etc/sysctl.d",
			"vm.overcommit_memory is 2: memory that is reserved counts although it is not used, so a start or fork may be refused")
	}
	return ok("vm.overcommit_memory is %d", n)
}

func probeShmemHugePages(_ context.Context, m *machine) Finding {
	const file = "sys/kernel/mm/transparent_hugepage/shmem_enabled"
	s, err := m.text(file)
	if err != nil {
		return ok("the kernel has none")
	}
	_, rest, _ := strings.Cut(s, "[")
	chosen, _, _ := strings.Cut(rest, "]")
	if chosen == "always" || chosen == "force" {
		return warn("as root: echo advise > /"+file,
			"%s: the first byte that a child writes may cost it 2 MiB of memory", chosen)
	}
	return ok("%s", chosen)
}
