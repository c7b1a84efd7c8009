package stock

import (
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
)

// gvisorModule is the module that runsc and this program are built from.
const gvisorModule = "gvisor.dev/gvisor"

// Version returns the version of the module that the program at path was built from, which the
// go command records. runsc itself knows its version in releases only.
func Version(path string) (string, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read version of runsc: %w", err)
	}
	if v := ModuleVersion(info); v != "" {
		return v, nil
	}
	return "unknown", nil
}

// ModuleVersion returns the version of gvisorModule in a program, or an empty text.
func ModuleVersion(info *debug.BuildInfo) string {
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == gvisorModule {
			return m.Version
		}
	}
	return ""
}
