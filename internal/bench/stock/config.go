package stock

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// WriteConfig writes the configuration of a container into the directory bundle, whose directory rootfs
// is its root. The container runs args with the capabilities of root. Its network namespace is that
// at the path namespace; empty for no network.
func WriteConfig(bundle, namespace string, args []string) error {
	type m = map[string]any
	namespaces := []m{}
	for _, kind := range []string{"pid", "ipc", "uts", "mount"} {
		namespaces = append(namespaces, m{"type": kind})
	}
	network := m{"type": "network"}
	if namespace != "" {
		network["path"] = namespace
	}
	namespaces = append(namespaces, network)
	config, err := json.Marshal(m{
		"ociVersion": "1.0.0",
		"process": m{
			"args": args, "cwd": "/",
			"env":  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			"user": m{"uid": 0, "gid": 0}, "capabilities": m{"bounding": rootsCapabilities, "effective": rootsCapabilities, "permitted": rootsCapabilities},
		},
		"root":     m{"path": "rootfs"},
		"hostname": "runsc",
		"mounts":   []m{{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}},
		"linux":    m{"namespaces": namespaces},
	})
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// rootsCapabilities are those that programs need to become another user and to open many files.
var rootsCapabilities = []string{"CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SYS_RESOURCE", "CAP_KILL"}
