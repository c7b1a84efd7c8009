package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// tree writes a fake root directory; keys that end in "/" are directories.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(file, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	mountsV1 = "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n" +
		"32 31 0:29 / /cg/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
		"35 31 0:32 / /cg/memory rw,relatime shared:10 master:3 - cgroup cgroup rw,memory\n" +
		"39 31 0:36 / /cg/pids rw - cgroup cgroup rw,pids\n" +
		"41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n"
	ownV1    = "4:cpu,cpuacct:/a\n3:memory:/b:c\n2:pids:/\n0::/\n"
	mountsV2 = "30 23 0:26 / /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
)

func v2Files(dir, controllers string) map[string]string {
	return map[string]string{
		"proc/self/mountinfo":                   mountsV2,
		"proc/self/cgroup":                      "0::/" + dir + "\n",
		"cg/" + dir + "/cgroup.procs":           "",
		"cg/" + dir + "/cgroup.subtree_control": "",
		"cg/" + dir + "/cgroup.controllers":     controllers,
	}
}

func with(files map[string]string, pairs ...string) map[string]string {
	for i := 0; i < len(pairs); i += 2 {
		files[pairs[i]] = pairs[i+1]
	}
	return files
}

func TestDetect(t *testing.T) {
	v1 := func() map[string]string {
		return map[string]string{
			"proc/self/mountinfo": mountsV1, "proc/self/cgroup": ownV1,
			"cg/unified/cgroup.controllers": "hugetlb\n",
		}
	}
	for _, c := range []struct {
		name   string
		files  map[string]string
		denied string // suffix of the file that is not writable
		kind   Kind
		memory string // directory below which memory groups are made
		reason string
		remedy string
	}{
		{name: "v1 hybrid", files: v1(), kind: KindV1, memory: "cg/memory/b:c"},
		{name: "v1 not ours", files: v1(), denied: "cg/memory/b:c", reason: "controller memory is not open to this user", remedy: remedyV1},
		{name: "v1 tasks not ours", files: v1(), denied: "cg/pids/tasks", reason: "controller pids is not open", remedy: remedyV1},
		{
			name: "v1 without pids", files: with(v1(), "proc/self/cgroup", "4:cpu,cpuacct:/\n3:memory:/\n"),
			reason: "controller pids is not enabled", remedy: remedyV1,
		},
		{
			name:  "v1 container that sees a part",
			files: with(v1(), "proc/self/mountinfo", strings.ReplaceAll(mountsV1, "0:32 / ", "0:32 /b:c ")),
			kind:  KindV1, memory: "cg/memory",
		},
		{
			name:   "v1 group outside of the mount",
			files:  with(v1(), "proc/self/mountinfo", strings.ReplaceAll(mountsV1, "0:32 / ", "0:32 /other ")),
			reason: "lies outside", remedy: remedyV1,
		},
		{name: "v2 delegated", files: v2Files("user/svc", "cpuset cpu io memory pids\n"), kind: KindV2, memory: "cg/user/svc"},
		{name: "v2 after Prepare", files: with(v2Files("svc", "cpu memory pids"), "proc/self/cgroup", "0::/svc/ramet-daemon\n"), kind: KindV2, memory: "cg/svc"},
		{name: "v2 without cpu", files: v2Files("svc", "memory pids\n"), reason: "does not have the cpu controller", remedy: remedyV2},
		{name: "v2 not ours", files: v2Files("svc", "cpu memory pids"), denied: "cgroup.subtree_control", reason: "not delegated", remedy: remedyV2},
		{name: "v2 outside of the namespace", files: with(v2Files("svc", "cpu memory pids"), "proc/self/cgroup", "0::/../x\n"), reason: "", remedy: remedyV2},
		{
			name:   "nothing mounted",
			files:  map[string]string{"proc/self/mountinfo": "25 1 8:1 / / rw - ext4 a rw\n", "proc/self/cgroup": "0::/\n"},
			reason: "no cgroup file system is mounted", remedy: remedyNone,
		},
		{name: "no proc", files: map[string]string{"x/": ""}, reason: "read mounts", remedy: remedyNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := tree(t, c.files)
			h, err := Detect(Options{Root: root, writable: func(file string) error {
				if c.denied != "" && strings.HasSuffix(file, c.denied) {
					return &os.PathError{Op: "write", Path: file, Err: os.ErrPermission}
				}
				return nil
			}})
			if c.kind != "" {
				if err != nil || h.Kind() != c.kind {
					t.Fatalf("Detect = %s, %v, want %s", h.Kind(), err, c.kind)
				}
				if got := h.own[memory]; got != filepath.Join(root, c.memory) {
					t.Errorf("memory groups would be made in %s", got)
				}
				return
			}
			var u *UnavailableError
			if !errors.Is(err, ErrUnavailable) || !errors.As(err, &u) {
				t.Fatalf("Detect = %v, want ErrUnavailable", err)
			}
			if !strings.Contains(u.Reason, c.reason) || u.Remedy != c.remedy {
				t.Errorf("reason %q, remedy %q", u.Reason, u.Remedy)
			}
			if h.Kind() != KindNone {
				t.Errorf("Kind = %s", h.Kind())
			}
		})
	}
}

func TestDetectRefusesParent(t *testing.T) {
	for _, parent := range []string{"..", "a/b", "-x", "A"} {
		if _, err := Detect(Options{Parent: parent}); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("Detect with parent %q = %v", parent, err)
		}
	}
}

func TestReadMountsUnescapes(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/mountinfo": `1 2 0:3 /a\134b /c\040d rw - cgroup2 x rw` + "\n"})
	m, err := readMounts(root)
	if err != nil || len(m) != 1 || m[0].root != `/a\b` || m[0].point != "/c d" {
		t.Errorf("readMounts = %+v, %v", m, err)
	}
}

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{
		api.NewID(api.KindSandbox): true, "pool_7": true, "pool_abc": true,
		"": false, ".": false, "..": false, "pool_": false, "pool_a/b": false, "pool_..": false, "x": false,
		api.NewID(api.KindImage): false, "pool_" + strings.Repeat("a", 33): false, "pool_a\n": false,
	} {
		if got := validID(id); got != want {
			t.Errorf("validID(%q) = %v", id, got)
		}
	}
}

// TestServicesStartDaemonsInTheirLeaf keeps the units of systemd in step: a service
// that is started again while sandboxes run has no other place.
func TestServicesStartDaemonsInTheirLeaf(t *testing.T) {
	for _, unit := range []string{"ramet.service", "user/ramet.service"} {
		b, err := os.ReadFile(filepath.Join("../../../packaging/systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "\nDelegateSubgroup="+daemonLeaf+"\n") {
			t.Errorf("%s does not start the daemon in %s", unit, daemonLeaf)
		}
	}
}
