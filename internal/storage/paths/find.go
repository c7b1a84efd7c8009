package paths

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"ramet.dev/ramet/api"
)

// The environment variables that set the directories, to run several daemons side by side.
const (
	EnvRuntimeDir = "RAMET_RUNTIME_DIR"
	EnvDataDir    = "RAMET_DATA_DIR"
	EnvConfigDir  = "RAMET_CONFIG_DIR"
)

const (
	// maxSocketPath is the room for a path in sockaddr_un (unix(7)) without its NUL.
	maxSocketPath = 107
	// maxSocketName is the room for the name of a socket in Sandboxes.
	maxSocketName = 32
)

// lookups are the functions by which Find asks the system.
type lookups struct {
	getenv func(string) string
	uid    int
	isDir  func(string) bool
	home   func() (string, error)
}

// Find returns the paths for the user this process runs as. It touches no file:
// see MakeRuntime and MakeData.
func Find() (Paths, error) {
	return find(lookups{getenv: os.Getenv, uid: os.Getuid(), isDir: isDir, home: homeDir})
}

// New returns paths below two given directories, which must be absolute.
func New(runtimeDir, dataDir string) (Paths, error) {
	for name, dir := range map[string]string{EnvRuntimeDir: runtimeDir, EnvDataDir: dataDir} {
		if !filepath.IsAbs(dir) {
			return Paths{}, api.Invalid(name, "%q is not an absolute path", dir)
		}
	}
	p := Paths{runtimeDir: filepath.Clean(runtimeDir), dataDir: filepath.Clean(dataDir)}
	if most := maxSocketPath - len(p.Sandboxes()) + len(p.runtimeDir) - len("/") - maxSocketName; len(p.runtimeDir) > most {
		return Paths{}, api.Invalid(EnvRuntimeDir, "%q is too long: sockets below it have room for %d bytes, and it has %d", p.runtimeDir, most, len(p.runtimeDir))
	}
	return p, nil
}

func find(l lookups) (Paths, error) {
	data, err := dataDir(l)
	if err != nil {
		return Paths{}, err
	}
	own := l.getenv(EnvRuntimeDir)
	p, err := New(cmp.Or(own, runtimeDir(l)), data)
	p.private = own == ""
	p.configDir = configDir(l)
	return p, err
}

func runtimeDir(l lookups) string {
	if dir := l.getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) { // the XDG specification ignores relative ones
		return filepath.Join(dir, "ramet")
	}
	uid := strconv.Itoa(l.uid)
	if dir := filepath.Join("/run/user", uid); l.isDir(dir) {
		return filepath.Join(dir, "ramet")
	}
	if l.uid == 0 {
		return "/run/ramet"
	}
	tmp := l.getenv("TMPDIR")
	if !filepath.IsAbs(tmp) {
		tmp = "/tmp"
	}
	return filepath.Join(tmp, "ramet-"+uid)
}

func dataDir(l lookups) (string, error) {
	if dir := l.getenv(EnvDataDir); dir != "" {
		return dir, nil
	}
	if dir := l.getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "ramet"), nil
	}
	home, err := l.home()
	if err != nil {
		return "", api.Invalid(EnvDataDir, "no home directory is known (%v): set it to a directory for images and snapshots", err)
	}
	return filepath.Join(home, ".local/share/ramet"), nil
}

// configDir returns "" if no home directory is known: only profiles are there.
func configDir(l lookups) string {
	for _, dir := range []struct{ variable, below string }{{EnvConfigDir, ""}, {"XDG_CONFIG_HOME", "ramet"}} {
		if v := l.getenv(dir.variable); filepath.IsAbs(v) {
			return filepath.Join(v, dir.below)
		}
	}
	home, err := l.home()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".config/ramet")
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

func homeDir() (string, error) {
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
		return home, nil
	}
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("look up user: %w", err)
	}
	if !filepath.IsAbs(u.HomeDir) {
		return "", fmt.Errorf("look up user: home directory is %q", u.HomeDir)
	}
	return u.HomeDir, nil
}
