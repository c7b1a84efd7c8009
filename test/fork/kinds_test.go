package fork

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// missingKinds are the kinds of kernel objects that sandboxes do not have, by the error
// that who asks for one gets: see kinds.go of the guest program. All others must outlive
// whatever is done to a sandbox.
var missingKinds = map[string]string{
	"EAFNOSUPPORT":    "alg bluetooth can vsock xdp",
	"EPROTONOSUPPORT": "audit connector generic netfilter sock-diag uevent xfrm",
	"ENOSYS":          "cachestat fanotify fsmount fsopen fspick io-uring landlock landlock-version memfd-secret mount-setattr open-tree open-tree-all open-tree-clone process-madvise quotactl-fd rseq userfaultfd",
	"ENOENT":          "dev-console dev-fuse dev-kmsg dev-kvm dev-loop-control dev-mem dev-net-tun dev-port dev-rtc dev-snapshot dev-tty0 dev-ttyS0 dev-uinput dev-userfaultfd dev-vhost-net ns-pid_for_children ns-time",
	"ENXIO":           "dev-tty", // they have no terminal
	"EINVAL":          "dnotify lease memfd-huge mptcp pipe-packets sctp seccomp-listener timer-alarm unshare-time",
	"EACCES":          "key",
	"ENOTSUP":         "name-to-handle shm-tmpfile",
	"EPERM":           "packet packet-raw raw-icmp raw-ip raw6",
	"ENODEV":          "perf",
	"ENOSPC":          "sysv-huge", // a freeze would take as long as it is large
}

// missingForRoot and missingForUsers are those for which it matters who asks.
var (
	missingForRoot = map[string]string{
		"EINVAL": "bpf-map",
		"ENODEV": "mount-9p mount-bpf mount-cgroup mount-cgroup2 mount-debugfs mount-dev mount-erofs mount-fuse mount-ramet mount-ramfs mount-securityfs",
	}
	missingForUsers = map[string]string{
		"EPERM": "bpf-map bpf-program chroot links mount-bind mount-devpts mount-devtmpfs mount-mqueue mount-overlay mount-proc mount-sysfs mount-tmpfs tcp-filter unshare-cgroup unshare-ipc unshare-net unshare-pid unshare-uts " +
			"mount-9p mount-bpf mount-cgroup mount-cgroup2 mount-debugfs mount-dev mount-erofs mount-fuse mount-ramet mount-ramfs mount-securityfs",
		"ENOMEM": "locked-memory",
	}
)

// TestKindsOfObjects has processes of root and of another user make every kind of
// object that a kernel has, and does everything to their sandbox by which its state is
// written and read: each kind is refused, or works afterwards. It takes 20 s, as blocking calls are waited for
// over each fork, restore and hibernation.
func TestKindsOfObjects(t *testing.T) {
	harness.OnlyOnce(t, "the kernel's objects do not depend on who starts sandboxes")
	n := harness.NewNode(t)
	n.Create("box")
	held := map[string]int{}
	for _, user := range []string{"root", "worker"} { // root lets the other one write to /tmp
		want := map[string]string{}
		its := missingForRoot
		if user != "root" {
			its = missingForUsers
		}
		for _, missing := range []map[string]string{missingKinds, its} {
			for errno, names := range missing {
				for _, name := range strings.Fields(names) {
					want[name] = errno
				}
			}
		}
		made := startKinds(n, "box", user)
		for _, name := range slices.Sorted(maps.Keys(made)) {
			if made[name] == "held" {
				held[user]++
			}
			if expected := want[name]; made[name] != expected && !(expected == "" && made[name] == "held") {
				t.Errorf("%s makes %s: %s, not %q", user, name, made[name], expected)
			}
			delete(want, name)
		}
		if len(want) > 0 {
			t.Errorf("nobody has tried %v", want)
		}
		if held[user] < 100 {
			t.Errorf("%s holds %d kinds only: the test proves little", user, held[user])
		}
	}
	check := func(name, ref string) {
		t.Helper()
		for user, count := range held {
			out, err := n.Run(ref, api.ExecRequest{Argv: []string{"guest", "check"}, User: user, TimeoutMS: 180_000}, "")
			if err != nil || !out.OK {
				t.Errorf("%s, %s: %v: %s%s", name, user, err, out.Stdout.String(), out.Stderr.String())
			} else if works := strings.Fields(out.Stdout.String())[0]; works != strconv.Itoa(count) {
				t.Errorf("%s, %s: %s kinds work, not %d", name, user, works, count)
			}
		}
	}
	check("before", "box")
	child := n.Fork("box", 1)[0]
	check("child", child.ID)
	check("grandchild", n.Fork(child.ID, 1)[0].ID)
	n.Snapshot(child.ID, api.SnapshotRequest{Name: "disk"})
	r, err := n.Machine.Restore(harness.AsOwner, "disk", api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	check("restored", n.Children(r)[0].ID)
	n.Hibernate("box")
	check("woken", "box")
}

// startKinds has the guest program make every kind of object as user, or those that are
// named, and returns what came of each: "held", or the name of an error.
func startKinds(n *harness.Node, ref, user string, names ...string) map[string]string {
	n.T.Helper()
	const patience = 180_000 // for more than 150 kinds, most of them in processes of their own
	out, err := n.Run(ref, api.ExecRequest{Argv: append([]string{"guest", "kinds"}, names...), User: user, TimeoutMS: patience}, "")
	if err != nil || !out.OK {
		n.T.Fatalf("%s: %v: %s%s", user, err, out.Stdout.String(), out.Stderr.String())
	}
	said := map[string]string{}
	for line := range strings.Lines(out.Stdout.String()) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		said[name] = what
	}
	return said
}
