package kern

import (
	"bufio"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
)

// maxAccounts bounds how much is read of /etc/passwd and /etc/group, in bytes: the
// guest owns these files.
const maxAccounts = 1 << 20

// maxGroups is how many groups a process may be in, besides its own: NGROUPS_MAX of Linux.
const maxGroups = 65536

// Credentials returns the credentials of name: empty for root, or a user name or uid with
// an optional :group. As with Docker, a user other than root is in the groups that /etc/group has it in,
// unless the group is given. Unlike gVisor's own look-up Credentials never takes an unknown name for
// root.
func (k *Kernel) Credentials(ctx context.Context, mns *vfs.MountNamespace, name string) (*auth.Credentials, error) {
	ns := k.RootUserNamespace()
	if name == "" {
		return auth.NewRootCredentials(ns), nil
	}
	account, group, hasGroup := strings.Cut(name, ":")
	login, uid, gid, err := k.account(ctx, mns, account)
	if err != nil {
		return nil, err
	}
	var more []auth.KGID
	if !hasGroup && login != "" && uid != 0 {
		more = k.groupsOf(ctx, mns, login)
	}
	if hasGroup {
		if gid, err = k.group(ctx, mns, group); err != nil {
			return nil, err
		}
	}
	if uid == 0 && gid == 0 {
		return auth.NewRootCredentials(ns), nil
	}
	var caps *auth.TaskCapabilities
	if uid == 0 {
		all := auth.NewRootCredentials(ns)
		caps = &auth.TaskCapabilities{PermittedCaps: all.PermittedCaps, EffectiveCaps: all.EffectiveCaps, BoundingCaps: all.BoundingCaps}
	}
	return auth.NewUserCredentials(auth.KUID(uid), auth.KGID(gid), more, caps, ns), nil
}

// account returns the user of a name or uid. The user of a uid that has no line has no name.
func (k *Kernel) account(ctx context.Context, mns *vfs.MountNamespace, account string) (login string, uid, gid uint32, err error) {
	number, numErr := parseID(account)
	found := k.scanAccounts(ctx, mns, "/etc/passwd", func(f []string) bool {
		if len(f) < 4 {
			return false
		}
		u, uerr := parseID(f[2])
		gr, gerr := parseID(f[3])
		if uerr != nil || gerr != nil || f[0] != account && (numErr != nil || u != number) {
			return false
		}
		login, uid, gid = f[0], u, gr
		return true
	})
	switch {
	case found:
		return login, uid, gid, nil
	case numErr == nil:
		return "", number, 0, nil // as Docker: an unknown uid has group 0
	}
	return "", 0, 0, api.Invalid("user", "no user %q in the sandbox's /etc/passwd", account)
}

func (k *Kernel) group(ctx context.Context, mns *vfs.MountNamespace, group string) (gid uint32, err error) {
	if n, err := parseID(group); err == nil {
		return n, nil
	}
	found := k.scanAccounts(ctx, mns, "/etc/group", func(f []string) bool {
		if len(f) < 3 || f[0] != group {
			return false
		}
		gid, err = parseID(f[2])
		return err == nil
	})
	if !found {
		return 0, api.Invalid("user", "no group %q in the sandbox's /etc/group", group)
	}
	return gid, nil
}

// groupsOf returns the groups that /etc/group has a user in, besides that of its line in /etc/passwd.
func (k *Kernel) groupsOf(ctx context.Context, mns *vfs.MountNamespace, login string) (groups []auth.KGID) {
	k.scanAccounts(ctx, mns, "/etc/group", func(f []string) bool {
		if len(f) < 4 || !slices.Contains(strings.Split(strings.TrimSpace(f[3]), ","), login) {
			return false
		}
		if gid, err := parseID(f[2]); err == nil && !slices.Contains(groups, auth.KGID(gid)) {
			groups = append(groups, auth.KGID(gid))
		}
		return len(groups) == maxGroups
	})
	return groups
}

// parseID parses a user or group id. The largest number stands for none, as in
// setresuid(2).
func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err == nil && n == math.MaxUint32 {
		err = strconv.ErrRange
	}
	return uint32(n), err
}

// scanAccounts calls match with the fields of each line of path until it
// returns true. A file that cannot be read has no lines.
func (k *Kernel) scanAccounts(ctx context.Context, mns *vfs.MountNamespace, path string, match func([]string) bool) bool {
	root := mns.Root(ctx)
	defer root.DecRef(ctx)
	file, err := k.VFS().OpenAt(ctx, k.RootCredentials(), PathAt(root, path), &vfs.OpenOptions{
		Flags: linux.O_RDONLY | linux.O_NONBLOCK, // it may be a pipe, and nothing would end the wait for its writer
	})
	if err != nil {
		return false
	}
	defer file.DecRef(ctx)
	lines := bufio.NewScanner(io.LimitReader(FileReader(ctx, file), maxAccounts))
	for lines.Scan() {
		if match(strings.Split(lines.Text(), ":")) {
			return true
		}
	}
	return false
}
