package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/engine/confinement"
	"ramet.dev/ramet/internal/engine/hostuser"
)

// sandboxNamespaces are the namespaces of every sandbox's process: its own, except for the network
// namespace, which all sandboxes share.
var sandboxNamespaces = []struct {
	name string // in /proc/self/ns
	flag uintptr
}{
	{"user", unix.CLONE_NEWUSER},
	{"mnt", unix.CLONE_NEWNS},
	{"pid", unix.CLONE_NEWPID},
	{"ipc", unix.CLONE_NEWIPC},
	{"uts", unix.CLONE_NEWUTS},
	{"net", unix.CLONE_NEWNET},
}

// wantedNamespaces is the number below which doctor warns: each sandbox takes one of every kind but
// one.
const wantedNamespaces = 256

const remedyContainer = "if this is a container, its seccomp or AppArmor profile forbids it: start the container with a profile that allows unshare, clone and mount (docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined), or run on the host"

func probeUserNamespaces(ctx context.Context, m *machine) Finding {
	if _, err := m.child(ctx, childRequest{probe: "namespaces", cloneflags: unix.CLONE_NEWUSER}); err != nil {
		return warn(m.userNamespaceRemedy(), "cannot make a user namespace: %v", err)
	}
	return ok("user %d can make user namespaces", os.Geteuid())
}

// probeOwnUsers says which users of the host sandboxes run as.
func probeOwnUsers(ctx context.Context, m *machine) Finding {
	if uid := os.Geteuid(); uid != 0 {
		return ok("sandboxes run as user %d: only a daemon that is root's can give each its own", uid)
	}
	if _, err := m.child(ctx, childRequest{probe: "namespaces", cloneflags: unix.CLONE_NEWUSER}); err != nil {
		return warn(m.userNamespaceRemedy(), "all sandboxes run as one user: without user namespaces none has its own")
	}
	if !hostuser.MayBecome() {
		return warn("in a container: give it CAP_SETUID and CAP_SETGID", "all sandboxes run as the daemon's user, which has no CAP_SETUID and CAP_SETGID")
	}
	if _, err := hostuser.FreeRange(m.path("")); err != nil {
		return warn("in a container: share the host's user namespace, or run the daemon as an ordinary user", "all sandboxes run as the host's nobody (65534), whose other processes can end them: %v", err)
	}
	return ok("each sandbox runs as a user of the host that nothing else is")
}

// userNamespaceRemedy finds the setting that forbids user namespaces.
func (m *machine) userNamespaceRemedy() string {
	if name, allowed := confinement.ForbiddingSysctl(m.path("")); name != "" {
		remedy := fmt.Sprintf("as root: sysctl -w %s=%d, and keep it in /etc/sysctl.d", name, allowed)
		if strings.Contains(name, "apparmor") {
			remedy += ", or give the ramet binary an AppArmor profile with the userns permission"
		}
		return remedy
	}
	return remedyContainer
}

func probeNamespaces(ctx context.Context, m *machine) Finding {
	var all uintptr
	for _, ns := range sandboxNamespaces {
		all |= ns.flag
	}
	reply, err := m.child(ctx, childRequest{probe: "namespaces", cloneflags: all})
	if err != nil {
		return warn(m.userNamespaceRemedy(), "cannot make all namespaces of a sandbox%s: %v", m.culprits(ctx), err)
	}
	var names, shared []string
	for _, ns := range sandboxNamespaces {
		names = append(names, ns.name)
		ours, err := os.Readlink(filepath.Join("/proc/self/ns", ns.name))
		if err != nil || ours == reply.Namespaces[ns.name] {
			shared = append(shared, ns.name)
		}
	}
	if shared != nil {
		return warn(remedyContainer, "the kernel says yes but gives no new namespace: %s", strings.Join(shared, ", "))
	}
	return ok("%s", strings.Join(names, ", "))
}

// culprits tries one kind of namespace after the other.
func (m *machine) culprits(ctx context.Context) string {
	var bad []string
	for _, ns := range sandboxNamespaces {
		if _, err := m.child(ctx, childRequest{probe: "namespaces", cloneflags: unix.CLONE_NEWUSER | ns.flag}); err != nil {
			bad = append(bad, ns.name)
		}
	}
	if bad == nil {
		return ""
	}
	return " (" + strings.Join(bad, ", ") + ")"
}

// childNamespaces reports its namespaces and tries whether they give any rights: some distributions
// let all users make a user namespace and take away all capabilities in it.
func childNamespaces() (childReply, error) {
	reply := childReply{Namespaces: map[string]string{}}
	for _, ns := range sandboxNamespaces {
		link, err := os.Readlink(filepath.Join("/proc/self/ns", ns.name))
		if err != nil {
			return reply, fmt.Errorf("read own namespaces: %w", err)
		}
		reply.Namespaces[ns.name] = link
	}
	// A further UTS namespace, because the present one may be everybody's.
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		return reply, fmt.Errorf("no capabilities in the user namespace: unshare: %w", err)
	}
	// The process that sandboxes are forks of is in such namespaces and makes theirs. Root
	// may make a first one where kernel.unprivileged_userns_clone is 0, but not this. A
	// program that does not exist tells the one refusal from the other.
	nested := &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}}
	if _, err := syscall.ForkExec(os.DevNull+"/none", nil, nested); !errors.Is(err, unix.ENOTDIR) {
		return reply, fmt.Errorf("make a user namespace in a user namespace: %w", err)
	}
	return reply, nil
}

func probeMounts(ctx context.Context, m *machine) Finding {
	_, err := m.child(ctx, childRequest{probe: "mounts", cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS})
	switch {
	case errors.Is(err, errStart):
		return warn(m.userNamespaceRemedy(), "cannot make a mount namespace: %v", err)
	case err != nil:
		return warn(remedyContainer, "cannot give a sandbox an empty root: %v", err)
	}
	return ok("an empty read-only root can be mounted")
}

// childMounts does the steps by which the process of a sandbox removes the files of the host.
func childMounts() (childReply, error) {
	target := os.TempDir()
	if _, err := os.Stat(target); err != nil {
		target = "/proc" // exists on every supported machine
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"make mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount tmpfs", func() error {
			return unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k")
		}},
		{"enter tmpfs", func() error { return unix.Chdir(target) }},
		{"pivot root", func() error { return unix.PivotRoot(".", ".") }},
		{"unmount old root", func() error { return unix.Unmount(".", unix.MNT_DETACH) }},
		{"enter new root", func() error { return unix.Chdir("/") }},
		{"remount read-only", func() error {
			return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		}},
	} {
		if err := step.do(); err != nil {
			return childReply{}, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	left, err := os.ReadDir("/")
	if err != nil || len(left) > 0 {
		return childReply{}, fmt.Errorf("new root is not empty: %d entries, %v", len(left), err)
	}
	if err := os.Mkdir("/x", 0o700); !errors.Is(err, unix.EROFS) {
		return childReply{}, fmt.Errorf("new root is not read-only: %v", err)
	}
	return childReply{}, nil
}

func probeNamespaceLimits(_ context.Context, m *machine) Finding {
	least, name := int64(-1), ""
	for _, ns := range sandboxNamespaces {
		n, err := m.number("proc/sys/user/max_" + ns.name + "_namespaces")
		if err != nil {
			return warn("mount /proc", "the limits of namespaces are unknown: %v", err)
		}
		if ns.flag == unix.CLONE_NEWNET && n > 0 {
			continue
		}
		if least < 0 || n < least {
			least, name = n, ns.name
		}
	}
	remedy := fmt.Sprintf("as root: sysctl -w user.max_%s_namespaces=15000, and keep it in /etc/sysctl.d", name)
	switch {
	case least == 0:
		return warn(remedy, "no %s namespace is allowed", name)
	case least < wantedNamespaces:
		return warn(remedy, "only %d %s namespaces are allowed, one is needed for each sandbox", least, name)
	}
	return ok("at least %d of each kind that every sandbox takes one of", least)
}

// isolating are the probes of layers that sandboxes can do without.
var isolating = []string{"user_namespaces", "own_users", "namespaces", "mounts", "cgroup"}

// sumUp says in one line how well this machine isolates sandboxes.
func sumUp(findings []Finding) Finding {
	var missing, required []string
	for _, f := range findings {
		switch {
		case f.Status == StatusFail:
			required = append(required, f.Name)
		case f.Status == StatusWarn && slices.Contains(isolating, f.Name):
			missing = append(missing, f.Name)
		}
	}
	switch {
	case required != nil:
		return fail("see these lines", "none: no sandbox can start without %s", strings.Join(required, ", "))
	case missing != nil:
		return warn("see these lines", "reduced: sandboxes run without %s", strings.Join(missing, ", "))
	}
	return ok("full: sandboxes have every layer")
}
