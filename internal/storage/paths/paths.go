package paths

import (
	"fmt"
	"path/filepath"

	"ramet.dev/ramet/api"
)

// Paths has the two directories of a daemon, which are absolute. Its methods return the
// paths below them.
type Paths struct {
	runtimeDir string
	dataDir    string
	configDir  string // of what the user writes; empty if there is no home directory
	// private demands that no other user may even read runtimeDir. It is off only for a
	// directory that the user has set.
	private bool
}

// RuntimeDir returns the directory of sockets and locks.
func (p Paths) RuntimeDir() string { return p.runtimeDir }

// DataDir returns the directory of files that outlive the login session.
func (p Paths) DataDir() string { return p.dataDir }

// Socket returns the path of the REST socket.
func (p Paths) Socket() string { return filepath.Join(p.runtimeDir, "ramet.sock") }

// Lock returns the path of the file whose lock is held while a daemon lives.
func (p Paths) Lock() string { return filepath.Join(p.runtimeDir, "ramet.lock") }

// StartLock returns the path of the file whose lock is held while a daemon
// starts.
func (p Paths) StartLock() string { return filepath.Join(p.runtimeDir, "start.lock") }

// Sandboxes returns the directory of the control sockets of sandboxes.
func (p Paths) Sandboxes() string { return filepath.Join(p.runtimeDir, "sandboxes") }

// Log returns the path of the log of a daemon that has no terminal.
func (p Paths) Log() string { return filepath.Join(p.dataDir, "daemon.log") }

// Registry returns the path of the database of sandboxes, snapshots and images.
func (p Paths) Registry() string { return filepath.Join(p.dataDir, "registry.db") }

// Audit returns the directory of the audit.
func (p Paths) Audit() string { return filepath.Join(p.dataDir, "audit") }

// Images returns the directory of images.
func (p Paths) Images() string { return filepath.Join(p.dataDir, "images") }

// PackageCache returns the directory of distribution packages that were fetched.
func (p Paths) PackageCache() string { return filepath.Join(p.dataDir, "packages") }

// Files returns the directory in which the files without names are made that sandboxes
// write to.
func (p Paths) Files() string { return filepath.Join(p.dataDir, "files") }

// Secrets returns the directory of the secrets of tenants.
func (p Paths) Secrets() string { return filepath.Join(p.dataDir, "secrets") }

// Volumes is the directory with the files of volumes.
func (p Paths) Volumes() string { return filepath.Join(p.dataDir, "volumes") }

// E2BKey is the file with the secret that access tokens of the interface of E2B are made with.
func (p Paths) E2BKey() string { return filepath.Join(p.dataDir, "e2b.key") }

// E2BAuthority is the file with the authority that signs certificates for clients of E2B, and its key.
func (p Paths) E2BAuthority() string { return filepath.Join(p.dataDir, "e2b-ca.pem") }

// E2BCertificate is the file with the certificate of that authority, which clients trust.
func (p Paths) E2BCertificate() string { return filepath.Join(p.dataDir, "e2b-ca.crt") }

// E2BFiles is the directory of files that clients of E2B upload for builds of templates.
func (p Paths) E2BFiles() string { return filepath.Join(p.dataDir, "e2b-files") }

// Held returns the directory of requests of sandboxes that wait for a decision.
func (p Paths) Held() string { return filepath.Join(p.dataDir, "held") }

// Networks returns the directory of the user's network profiles, or "".
func (p Paths) Networks() string {
	if p.configDir == "" {
		return ""
	}
	return filepath.Join(p.configDir, "network")
}

// Config returns the user's configuration file of the daemon, or "".
func (p Paths) Config() string {
	if p.configDir == "" {
		return ""
	}
	return filepath.Join(p.configDir, "config.toml")
}

// Snapshots returns the directory of snapshots.
func (p Paths) Snapshots() string { return filepath.Join(p.dataDir, "snapshots") }

// SigningKey returns the path of the secret by which snapshots are signed.
func (p Paths) SigningKey() string { return filepath.Join(p.dataDir, "signing-key") }

// Engines returns the directory of the programs that snapshots were written by.
func (p Paths) Engines() string { return filepath.Join(p.dataDir, "engines") }

// Snapshot returns the path of a snapshot's directory.
func (p Paths) Snapshot(id string) (string, error) {
	if !api.IsID(api.KindSnapshot, id) {
		return "", fmt.Errorf("make path: %w", api.Invalid("id", "%q is not the id of a snapshot", id))
	}
	return filepath.Join(p.Snapshots(), id), nil
}
