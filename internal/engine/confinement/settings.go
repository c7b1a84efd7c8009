package confinement

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// forbidding are the settings of kernels that keep users from making user namespaces, each with the value to set. Those
// of Debian and Ubuntu do not exist elsewhere.
var forbidding = []struct {
	name    string
	forbids func(value int64) bool
	set     int64
}{
	{"kernel.unprivileged_userns_clone", func(v int64) bool { return v == 0 }, 1},
	{"user.max_user_namespaces", func(v int64) bool { return v == 0 }, 15000},
	{"kernel.apparmor_restrict_unprivileged_userns", func(v int64) bool { return v != 0 }, 0},
}

// ForbiddingSysctl returns the setting that keeps users from making user namespaces on the machine whose files are
// below root, and the value that allows it. The name is empty if it is none.
func ForbiddingSysctl(root string) (name string, allowed int64) {
	for _, s := range forbidding {
		path := filepath.Join(root, "proc/sys", strings.ReplaceAll(s.name, ".", "/"))
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if v, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && s.forbids(v) {
			return s.name, s.set
		}
	}
	return "", 0
}

// withCause adds the setting of the kernel to an error of making namespaces.
func withCause(err error) error {
	if name, allowed := ForbiddingSysctl("/"); name != "" && os.Geteuid() != 0 {
		return fmt.Errorf("%w: sysctl -w %s=%d allows it", err, name, allowed)
	}
	return err
}

// InGVisor reports whether the kernel of this machine is gVisor, which cannot run the processes of sandboxes. Its
// version is the same text in all of its releases.
func InGVisor() bool {
	var uts unix.Utsname
	return unix.Uname(&uts) == nil && bytes.Contains(uts.Version[:], []byte("#1 SMP Sun Jan 10 15:06:54 PST 2016"))
}
