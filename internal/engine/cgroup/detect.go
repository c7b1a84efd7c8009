package cgroup

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

// Kind is the version of control groups in use.
type Kind string

// The kinds. A nil Hierarchy is of KindNone.
const (
	KindV1   Kind = "v1"
	KindV2   Kind = "v2"
	KindNone Kind = "none"
)

// defaultParent is the directory of the groups below the caller's own group.
const defaultParent = "ramet"

type controller string

const (
	memory  controller = "memory"
	cpu     controller = "cpu"
	cpuacct controller = "cpuacct" // v1 only; v2's cpu counts too
	pids    controller = "pids"
)

var (
	neededV1 = []controller{memory, cpu, cpuacct, pids}
	neededV2 = []controller{memory, cpu, pids}

	parentPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
)

const (
	remedyV1   = "run the daemon as root, or let the administrator make a group in each of the memory, cpu, cpuacct and pids hierarchies, owned by this user, and start the daemon in them"
	remedyV2   = "start the daemon in a group of its own: `systemd-run --user --scope -p Delegate=yes ramet serve` (as root: without --user); if a controller is missing, add `Delegate=cpu memory pids` to the [Service] section of user@.service"
	remedyNone = "mount cgroup v2 at /sys/fs/cgroup and delegate a group with the memory, cpu and pids controllers to this user"
)

// Options of Detect. The zero value is this machine and defaultParent.
type Options struct {
	// Root is the directory in which proc and the mounted hierarchies are found.
	Root string
	// Parent names the directory that holds the groups. Sweep takes all it finds
	// there, so two daemons that share their own group need different names.
	Parent string

	writable func(file string) error // nil: ask the kernel
}

// Detect returns the hierarchy below which this process may make groups, or an
// error that is ErrUnavailable. It changes nothing. v2 wins where both work.
func Detect(o Options) (*Hierarchy, error) {
	if o.Parent == "" {
		o.Parent = defaultParent
	}
	if !parentPattern.MatchString(o.Parent) {
		return nil, api.Invalid("parent", "%q is not a group name", o.Parent)
	}
	if o.writable == nil {
		o.writable = effectivelyWritable
	}
	mounts, err := readMounts(o.Root)
	if err != nil {
		return nil, &UnavailableError{Reason: err.Error(), Remedy: remedyNone}
	}
	own, err := readOwn(o.Root)
	if err != nil {
		return nil, &UnavailableError{Reason: err.Error(), Remedy: remedyNone}
	}
	h, errV2 := detectV2(o, mounts, own)
	if errV2 == nil {
		return h, nil
	}
	h, errV1 := detectV1(o, mounts, own)
	if errV1 == nil {
		return h, nil
	}
	return nil, unavailable(mounts, errV1, errV2)
}

func unavailable(mounts []mount, errV1, errV2 error) error {
	v1 := slices.ContainsFunc(mounts, func(m mount) bool { return !m.v2 && m.has(memory) })
	v2 := slices.ContainsFunc(mounts, func(m mount) bool { return m.v2 })
	switch {
	case v1: // on hybrid machines v2 has no controllers to give
		return &UnavailableError{Reason: errV1.Error(), Remedy: remedyV1}
	case v2:
		return &UnavailableError{Reason: errV2.Error(), Remedy: remedyV2}
	}
	return &UnavailableError{Reason: "no cgroup file system is mounted", Remedy: remedyNone}
}

func detectV2(o Options, mounts []mount, own map[controller]string) (*Hierarchy, error) {
	dir, err := ownDir(o.Root, mounts, own, "")
	if err != nil {
		return nil, err
	}
	if filepath.Base(dir) == daemonLeaf { // an earlier Prepare, or systemd, moved this process there
		dir = filepath.Dir(dir)
	}
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	delegated := strings.Fields(string(b))
	h := &Hierarchy{kind: KindV2, parent: o.Parent, own: map[controller]string{}}
	for _, c := range neededV2 {
		if !slices.Contains(delegated, string(c)) {
			return nil, fmt.Errorf("cgroup v2 group %s does not have the %s controller", dir, c)
		}
		h.own[c] = dir
	}
	for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if err := o.writable(filepath.Join(dir, f)); err != nil {
			return nil, fmt.Errorf("cgroup v2 is not delegated to this user: %w", err)
		}
	}
	return h, nil
}

func detectV1(o Options, mounts []mount, own map[controller]string) (*Hierarchy, error) {
	h := &Hierarchy{kind: KindV1, parent: o.Parent, own: map[controller]string{}}
	for _, c := range neededV1 {
		dir, err := ownDir(o.Root, mounts, own, c)
		if err != nil {
			return nil, err
		}
		for _, f := range []string{"", "tasks"} {
			if err := o.writable(filepath.Join(dir, f)); err != nil {
				return nil, fmt.Errorf("cgroup v1 controller %s is not open to this user: %w", c, err)
			}
		}
		h.own[c] = dir
	}
	return h, nil
}

// ownDir returns the directory of this process's own group in the hierarchy of c, where
// the empty controller stands for v2.
func ownDir(root string, mounts []mount, own map[controller]string, c controller) (string, error) {
	what := "cgroup v2"
	if c != "" {
		what = "cgroup v1 controller " + string(c)
	}
	group, ok := own[c]
	if !ok {
		return "", fmt.Errorf("%s is not enabled", what)
	}
	err := fmt.Errorf("%s is not mounted", what)
	for _, m := range mounts {
		if m.v2 != (c == "") || c != "" && !m.has(c) {
			continue
		}
		rel, relErr := filepath.Rel(m.root, group)
		if relErr != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			// A container that sees only part of the hierarchy.
			err = fmt.Errorf("%s: our group %s lies outside of what is mounted at %s", what, group, m.point)
			continue
		}
		return filepath.Join(root, m.point, rel), nil
	}
	return "", err
}

// mount is one mounted hierarchy.
type mount struct {
	v2      bool
	root    string   // group that is visible at point
	point   string   // where
	options []string // of the super block: v1 names its controllers there
}

func (m mount) has(c controller) bool { return slices.Contains(m.options, string(c)) }

// readMounts lists the cgroup mounts in mountinfo, whose lines look like
// "32 31 0:29 /root /point rw,relatime shared:9 - cgroup source rw,cpu", with
// any number of optional fields before the dash.
func readMounts(root string) ([]mount, error) {
	b, err := os.ReadFile(filepath.Join(root, "/proc/self/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	var out []mount
	for line := range strings.Lines(string(b)) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 || r[0] != "cgroup" && r[0] != "cgroup2" {
			continue
		}
		out = append(out, mount{
			v2:      r[0] == "cgroup2",
			root:    unescape.Replace(l[3]),
			point:   unescape.Replace(l[4]),
			options: strings.Split(r[2], ","),
		})
	}
	return out, nil
}

// unescape undoes the octal escapes of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// readOwn returns the group of this process by controller, v2's under the empty one. Lines
// look like "4:cpu,cpuacct:/path" and "0::/path".
func readOwn(root string) (map[controller]string, error) {
	b, err := os.ReadFile(filepath.Join(root, "/proc/self/cgroup"))
	if err != nil {
		return nil, fmt.Errorf("read own control groups: %w", err)
	}
	own := map[controller]string{}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			own[controller(c)] = path.Clean(f[2])
		}
	}
	return own, nil
}

func effectivelyWritable(file string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, file, unix.W_OK, unix.AT_EACCESS); err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}
