package process

import (
	"fmt"
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/network/control"
)

// The layers, in the order in which they are put on: users change while there are privileges, and the
// filter of system calls comes last.
const (
	layerUser     = "own_user"
	layerDump     = "undumpable"
	layerLimits   = "limits"
	layerPrivs    = "no_new_privs"
	layerLandlock = "landlock"
	layerSeccomp  = "seccomp"
)

// Landlock's versions: which file accesses it knows grows, binding of ports came with the fourth, and
// scopes with the sixth.
const (
	abiNet   = 4
	abiScope = 6
)

// confine gives up what the process does not need. It fails if a layer fails that the host has; one
// that the host lacks is told.
func confine(cfg *Config) ([]control.Layer, error) {
	var layers []control.Layer
	for _, l := range []struct {
		name string
		put  func(*Config) (lacks string, err error)
	}{
		{layerLimits, setLimits}, {layerUser, becomeUser}, {layerPrivs, dropPrivileges}, {layerDump, hideMemory}, {layerLandlock, restrictFiles}, {layerSeccomp, filterCalls},
	} {
		lacks, err := l.put(cfg)
		if err != nil {
			return nil, fmt.Errorf("confine the gateway: %s: %w", l.name, err)
		}
		layers = append(layers, control.Layer{Name: l.name, On: lacks == "", Reason: lacks})
	}
	return layers, nil
}

// setLimits raises the limit of descriptors to the host's, and sets others to nothing.
func setLimits(*Config) (string, error) {
	for name, resource := range map[string]int{"core": unix.RLIMIT_CORE, "locked memory": unix.RLIMIT_MEMLOCK, "message queues": unix.RLIMIT_MSGQUEUE} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{}); err != nil {
			return "", fmt.Errorf("limit %s: %w", name, err)
		}
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return "", fmt.Errorf("read limit of open files: %w", err)
	}
	files.Cur = files.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return "", fmt.Errorf("raise limit of open files: %w", err)
	}
	return "", nil
}

// becomeUser makes the process a user of its own. The capabilities of root go with that.
func becomeUser(cfg *Config) (string, error) {
	if cfg.User == 0 {
		return cfg.NoUser, nil
	}
	if err := syscall.Setgroups(nil); err != nil {
		return "", fmt.Errorf("leave groups: %w", err)
	}
	if err := syscall.Setresgid(cfg.User, cfg.User, cfg.User); err != nil {
		return "", fmt.Errorf("become group %d: %w", cfg.User, err)
	}
	if err := syscall.Setresuid(cfg.User, cfg.User, cfg.User); err != nil {
		return "", fmt.Errorf("become user %d: %w", cfg.User, err)
	}
	return "", nil
}

// dropPrivileges empties the sets of capabilities and forbids new privileges, in all threads.
func dropPrivileges(*Config) (string, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0); errno == unix.ENOTSUP {
		return "the program was built with cgo, which keeps it from changing all threads", nil
	} else if errno != 0 {
		return "", fmt.Errorf("drop capabilities: %w", errno)
	}
	runtime.KeepAlive(&none)
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 {
		return "", errno
	}
	return "", nil
}

// hideMemory keeps other processes of the user from reading the memory of the process, which has
// secrets in it.
func hideMemory(*Config) (string, error) {
	return "", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// certificates are where distributions keep the certificates of authorities.
var certificates = []string{"/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/usr/share/pki", "/usr/local/etc/ssl"}

// writing is what the directory of held requests needs: files are made, replaced and removed.
const writing = landlock.AccessFSSet(unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE)

// restrictFiles leaves the files to be read that say how names are resolved, and certificates. The
// directories of the former are named: the files are replaced by others with their names.
func restrictFiles(cfg *Config) (string, error) {
	abi, err := landlocksys.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		if cfg.NoHold == "" && cfg.User == 0 {
			// The filter of system calls knows no paths: all files of the user would be writable.
			cfg.NoHold = "the kernel has no Landlock, which keeps the gateway from other files"
		}
		return "the kernel has no Landlock", nil
	}
	readable := append([]string{}, certificates...)
	for _, path := range []string{cfg.ResolvConf, cfg.Hosts} {
		readable = append(readable, filepath.Dir(path))
		if real, err := filepath.EvalSymlinks(path); err == nil {
			readable = append(readable, filepath.Dir(real))
		}
	}
	rule := landlock.PathAccess(landlock.AccessFSSet(unix.LANDLOCK_ACCESS_FS_READ_FILE|unix.LANDLOCK_ACCESS_FS_READ_DIR), readable...).IgnoreIfMissing()
	rules := []landlock.Rule{rule}
	if cfg.NoHold == "" {
		rules = append(rules, landlock.PathAccess(writing, heldDir))
	}
	if err := landlock.V6.BestEffort().RestrictPaths(rules...); err != nil {
		return "", err
	}
	if abi < abiNet {
		return fmt.Sprintf("Landlock of the kernel is version %d: files are restricted, but ports and signals are not", abi), nil
	}
	// Binding only: which addresses it may connect to is what its policies say.
	bind, err := landlock.NewConfig(landlock.AccessNetSet(unix.LANDLOCK_ACCESS_NET_BIND_TCP))
	if err != nil {
		return "", err
	}
	if err := bind.RestrictNet(); err != nil {
		return "", fmt.Errorf("ports: %w", err)
	}
	if abi < abiScope {
		return fmt.Sprintf("Landlock of the kernel is version %d: files and ports are restricted, but signals and abstract sockets are not", abi), nil
	}
	return "", landlock.V6.RestrictScoped()
}
