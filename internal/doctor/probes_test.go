package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func fakeRoot(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func namespaceLimits(n string, except map[string]string) map[string]string {
	files := map[string]string{}
	for _, ns := range sandboxNamespaces {
		files["proc/sys/user/max_"+ns.name+"_namespaces"] = n
	}
	for k, v := range except {
		files["proc/sys/user/max_"+k+"_namespaces"] = v
	}
	return files
}

func cpuFiles(release, flags string) map[string]string {
	return map[string]string{
		"proc/cpuinfo":              "processor\t: 0\nflags\t\t: fpu " + flags + "\n\nprocessor\t: 1\nflags\t\t: fpu\n",
		"proc/sys/kernel/osrelease": release,
	}
}

// meminfo returns the text of a machine with so many KiB of available memory.
func meminfo(available string) string {
	return "MemTotal: 9 kB\nMemAvailable:   " + available + " kB\nAnonPages: 1 kB\nShmem: 1 kB\nKernelStack: 1 kB\nPageTables: 1 kB\n"
}

func TestProbesOfSettings(t *testing.T) {
	type run = func(context.Context, *machine) Finding
	const (
		release  = "proc/sys/kernel/osrelease"
		maps     = "proc/sys/vm/max_map_count"
		commit   = "proc/sys/vm/overcommit_memory"
		huge     = "sys/kernel/mm/transparent_hugepage/shmem_enabled"
		mem      = "proc/meminfo"
		features = "fsgsbase xsave xsaveopt"
	)
	for _, c := range []struct {
		name   string
		run    run
		files  map[string]string
		status Status
		detail string
	}{
		{"kernel new", probeKernel, map[string]string{release: "6.1.0-18-amd64\n"}, StatusOK, "Linux 6.1"},
		{"kernel first", probeKernel, map[string]string{release: "5.3-rc1\n"}, StatusOK, "5.3"},
		{"kernel old", probeKernel, map[string]string{release: "4.19.0\n"}, StatusFail, "4.19"},
		{"kernel strange", probeKernel, map[string]string{release: "custom\n"}, StatusWarn, "custom"},
		{"kernel unknown", probeKernel, nil, StatusFail, "unknown"},
		{"cpu", probeCPU, cpuFiles("6.1.0", features), StatusOK, "fsgsbase"},
		{"cpu old kernel", probeCPU, cpuFiles("5.4.0", features), StatusWarn, "without: fsgsbase"},
		{"cpu without xsave", probeCPU, cpuFiles("6.1.0", "fsgsbase"), StatusWarn, "without: xsave, xsaveopt"},
		{"cpu unknown", probeCPU, nil, StatusWarn, "unknown"},
		{"limits", probeNamespaceLimits, namespaceLimits("5000\n", nil), StatusOK, "5000"},
		{"limits low", probeNamespaceLimits, namespaceLimits("5000", map[string]string{"ipc": "20"}), StatusWarn, "20 ipc"},
		{"one network for all", probeNamespaceLimits, namespaceLimits("5000", map[string]string{"net": "1"}), StatusOK, "5000"},
		{"no network", probeNamespaceLimits, namespaceLimits("5000", map[string]string{"net": "0"}), StatusWarn, "no net"},
		{"limits none", probeNamespaceLimits, namespaceLimits("5000", map[string]string{"user": "0"}), StatusWarn, "no user"},
		{"limits unknown", probeNamespaceLimits, nil, StatusWarn, "unknown"},
		{"maps", probeMaxMapCount, map[string]string{maps: "65530\n"}, StatusOK, "65530"},
		{"maps few", probeMaxMapCount, map[string]string{maps: "1000\n"}, StatusWarn, "1000"},
		{"overcommit", probeOvercommit, map[string]string{commit: "1\n"}, StatusOK, "1"},
		{"overcommit strict", probeOvercommit, map[string]string{commit: "2\n"}, StatusWarn, "2"},
		{"huge never", probeShmemHugePages, map[string]string{huge: "always within_size advise [never] deny force\n"}, StatusOK, "never"},
		{"huge always", probeShmemHugePages, map[string]string{huge: "[always] within_size advise never\n"}, StatusWarn, "always"},
		{"huge none", probeShmemHugePages, nil, StatusOK, "none"},
		{"memory", probeMemory, map[string]string{mem: meminfo("1048576")}, StatusOK, "1024 MiB"},
		{"memory little", probeMemory, map[string]string{mem: meminfo("102400")}, StatusWarn, "100 MiB"},
		{"memory none", probeMemory, map[string]string{mem: meminfo("1024")}, StatusFail, "1 MiB"},
		{"memory strange", probeMemory, map[string]string{mem: meminfo("x")}, StatusWarn, "unknown"},
		{"idle poll", probeIdlePoll, map[string]string{"dev/cpu_dma_latency": "", "sys/devices/system/cpu/online": "0-1\n"}, StatusOK, "while a request is new"},
		{"idle poll, many", probeIdlePoll, map[string]string{"dev/cpu_dma_latency": "", "sys/devices/system/cpu/online": "0-127\n"}, StatusOK, "there are 128 of them"},
		{"idle poll none", probeIdlePoll, map[string]string{"sys/devices/system/cpu/online": "0-1\n"}, StatusOK, "no such file"},
		{"kvm", probeKVM, map[string]string{"dev/kvm": ""}, StatusOK, "there, but"},
		{"kvm none", probeKVM, nil, StatusOK, "not there"},
		{"cgroup none", probeCgroup, map[string]string{"proc/self/mountinfo": "", "proc/self/cgroup": "0::/\n"}, StatusWarn, "no cgroup file system"},
		{"cgroup v2", probeCgroup, map[string]string{
			"proc/self/mountinfo": "30 23 0:26 / /cg rw - cgroup2 c rw\n", "proc/self/cgroup": "0::/s\n",
			"cg/s/cgroup.controllers": "cpu memory pids", "cg/s/cgroup.procs": "", "cg/s/cgroup.subtree_control": "",
		}, StatusOK, "cgroup v2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.run(t.Context(), &machine{root: fakeRoot(t, c.files), child: noChild, arch: "amd64", page: 4096})
			if f.Status != c.status || !strings.Contains(f.Detail, c.detail) {
				t.Errorf("%+v, want %s with %q", f, c.status, c.detail)
			}
			f.Name = c.name
			checkShape(t, f)
		})
	}
}

// TestPointerAuthentication has kernels that can and cannot turn it off.
func TestPointerAuthentication(t *testing.T) {
	for _, c := range []struct {
		release, features string
		want              Status
	}{{"5.10.0", "fp asimd paca pacg", StatusWarn}, {"5.10.0", "fp asimd", StatusOK}, {"6.1.0", "fp asimd paca pacg", StatusOK}} {
		files := map[string]string{"proc/cpuinfo": "processor\t: 0\nFeatures\t: " + c.features + "\n", "proc/sys/kernel/osrelease": c.release}
		f := probeCPU(t.Context(), &machine{root: fakeRoot(t, files), arch: "arm64", page: 4096})
		if f.Status != c.want {
			t.Errorf("Linux %s with %s: %+v", c.release, c.features, f)
		}
		f.Name = "cpu"
		checkShape(t, f)
	}
}

// TestArchitectures has processors and kernels on which sandboxes can and cannot run.
func TestArchitectures(t *testing.T) {
	for _, c := range []struct {
		arch   string
		page   int
		status Status
		detail string
	}{
		{"amd64", 4096, StatusOK, "amd64 with fsgsbase"},
		{"arm64", 4096, StatusOK, "arm64 with pages of 4 KiB"},
		{"arm64", 16384, StatusFail, "pages of 16 KiB"},
		{"arm64", 65536, StatusFail, "pages of 64 KiB"},
		{"riscv64", 4096, StatusFail, "this is riscv64"},
	} {
		f := probeCPU(t.Context(), &machine{root: fakeRoot(t, cpuFiles("6.1.0", "fsgsbase xsave xsaveopt")), arch: c.arch, page: c.page})
		if f.Status != c.status || !strings.Contains(f.Detail, c.detail) {
			t.Errorf("%s with pages of %d: %+v, want %s with %q", c.arch, c.page, f, c.status, c.detail)
		}
		f.Name = c.arch
		checkShape(t, f)
	}
}

func TestJudgements(t *testing.T) {
	for _, c := range []struct {
		got  Finding
		want Status
	}{
		{judgeOpenFiles(unix.RLIM_INFINITY), StatusOK},
		{judgeLandlock(0, unix.ENOSYS), StatusWarn},
		{judgeLandlock(wantedLandlock-1, 0), StatusWarn},
		{judgeLandlock(wantedLandlock, 0), StatusOK},
		{judgeOpenFiles(1024), StatusWarn},
		{judgeOpenFiles(64), StatusFail},
		{judgeProcesses(1, true), StatusOK},
		{judgeProcesses(1, false), StatusFail},
		{judgeProcesses(1000, false), StatusWarn},
		{judgeProcesses(unix.RLIM_INFINITY, false), StatusOK},
		{judgeDisk("/x", 1<<40), StatusOK},
		{judgeDisk("/x", 1<<30), StatusWarn},
		{judgeDisk("/x", 1<<20), StatusFail},
	} {
		if c.got.Status != c.want {
			t.Errorf("%+v, want %s", c.got, c.want)
		}
		c.got.Name = "x"
		checkShape(t, c.got)
	}
}

func TestDiskLooksAtTheClosestDirectory(t *testing.T) {
	dir := t.TempDir()
	got, err := existingAncestor(filepath.Join(dir, "a", "b"))
	if err != nil || got != dir {
		t.Errorf("existingAncestor = %q, %v, want %q", got, err, dir)
	}
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, filepath.Join(file, "x")} {
		if got, err := existingAncestor(bad); err == nil {
			t.Errorf("existingAncestor(%q) = %q", bad, got)
		}
	}
}

// TestUserNamespaceRemedies checks that the setting at fault is named.
func TestUserNamespaceRemedies(t *testing.T) {
	const prefix = "proc/sys/"
	for _, c := range []struct{ file, value, want string }{
		{"kernel/unprivileged_userns_clone", "0\n", "kernel.unprivileged_userns_clone=1"},
		{"user/max_user_namespaces", "0\n", "user.max_user_namespaces="},
		{"kernel/apparmor_restrict_unprivileged_userns", "1\n", "apparmor_restrict_unprivileged_userns=0"},
		{"kernel/other", "0\n", "container"},
	} {
		m := &machine{root: fakeRoot(t, map[string]string{prefix + c.file: c.value}), child: noChild}
		for _, f := range []Finding{probeUserNamespaces(t.Context(), m), probeNamespaces(t.Context(), m)} {
			if f.Status != StatusWarn || !strings.Contains(f.Remedy, c.want) {
				t.Errorf("%s: %+v", c.file, f)
			}
		}
	}
}

// TestOwnUsers has a container whose user namespace is that of an ordinary one.
func TestOwnUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the sandboxes of an ordinary user are that user")
	}
	const all, some = "0 0 4294967295\n", "0 100000 65536\n"
	for uids, want := range map[string]Status{all: StatusOK, some: StatusWarn} {
		m := &machine{root: fakeRoot(t, map[string]string{"proc/self/uid_map": uids, "proc/self/gid_map": all}), child: func(context.Context, childRequest) (childReply, error) {
			return childReply{}, nil
		}}
		f := probeOwnUsers(t.Context(), m)
		if f.Status != want || (want == StatusWarn) != strings.Contains(f.Detail, "nobody (65534)") {
			t.Errorf("users %q: %+v", uids, f)
		}
		m.child = noChild
		if f := probeOwnUsers(t.Context(), m); f.Status != StatusWarn || !strings.Contains(f.Detail, "one user") {
			t.Errorf("without user namespaces: %+v", f)
		}
	}
}

func TestNamespacesNamesTheCulprits(t *testing.T) {
	m := &machine{root: t.TempDir(), child: func(_ context.Context, r childRequest) (childReply, error) {
		if r.cloneflags&(unix.CLONE_NEWNET|unix.CLONE_NEWPID) != 0 {
			return childReply{}, unix.EPERM
		}
		return childReply{}, nil
	}}
	if f := probeNamespaces(t.Context(), m); !strings.Contains(f.Detail, "(pid, net)") {
		t.Errorf("%+v", f)
	}
	// A kernel that lies: all namespaces are still ours.
	m.child = func(context.Context, childRequest) (childReply, error) {
		reply, err := childReply{Namespaces: map[string]string{}}, error(nil)
		for _, ns := range sandboxNamespaces {
			if reply.Namespaces[ns.name], err = os.Readlink("/proc/self/ns/" + ns.name); err != nil {
				t.Fatal(err)
			}
		}
		return reply, nil
	}
	if f := probeNamespaces(t.Context(), m); f.Status != StatusWarn || !strings.Contains(f.Detail, "user, mnt, pid, ipc, uts, net") {
		t.Errorf("%+v", f)
	}
}

func TestMountsTellsStartFromMount(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: EPERM", errStart), "mount namespace"},
		{unix.EPERM, "empty root"},
	} {
		m := &machine{root: t.TempDir(), child: func(context.Context, childRequest) (childReply, error) { return childReply{}, c.err }}
		if f := probeMounts(t.Context(), m); f.Status != StatusWarn || !strings.Contains(f.Detail, c.want) {
			t.Errorf("%v: %+v", c.err, f)
		}
	}
}

func TestPtraceRemedyKnowsYama(t *testing.T) {
	for scope, want := range map[string]string{"": "seccomp profile", "1": "seccomp profile", "2": "kernel.yama.ptrace_scope=1", "3": "reboot"} {
		files := map[string]string{}
		if scope != "" {
			files["proc/sys/kernel/yama/ptrace_scope"] = scope + "\n"
		}
		f := probePtrace(t.Context(), &machine{root: fakeRoot(t, files), child: noChild})
		if f.Status != StatusFail || !strings.Contains(f.Remedy, want) {
			t.Errorf("scope %q: %+v", scope, f)
		}
	}
}
