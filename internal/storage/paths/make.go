package paths

import (
	"fmt"
	"os"
	"syscall"

	"ramet.dev/ramet/api"
)

// MakeRuntime makes the runtime directory if it is missing and checks that no other user
// can put a socket there, or has made it: the directory may be below /tmp.
func (p Paths) MakeRuntime() error {
	forbidden := os.FileMode(0o022)
	if p.private {
		forbidden = 0o077
	}
	return makeOwn(EnvRuntimeDir, p.runtimeDir, forbidden)
}

// MakeData makes the data directory if it is missing and checks that no other
// user can write to it.
func (p Paths) MakeData() error { return makeOwn(EnvDataDir, p.dataDir, 0o022) }

// makeOwn makes a directory and checks that it is the user's, without the forbidden permissions. variable is the
// environment variable that chooses another one.
func makeOwn(variable, dir string, forbidden os.FileMode) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return api.Errorf(api.CodeIsolation, "make directory: %w: set %s to a directory of this user", err, variable)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("check directory: %w", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.IsDir():
		return api.Errorf(api.CodeIsolation, "%s is not a directory: set %s to one", dir, variable)
	case !ok || int(st.Uid) != os.Getuid():
		return api.Errorf(api.CodeIsolation, "%s belongs to another user: set %s to a directory of this user", dir, variable)
	case fi.Mode().Perm()&forbidden != 0:
		return api.Errorf(api.CodeIsolation, "%s is open to other users (mode %#o): chmod 700 it, or set %s", dir, fi.Mode().Perm(), variable)
	}
	return nil
}
