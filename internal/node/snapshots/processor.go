package snapshots

import (
	"cmp"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"

	"ramet.dev/ramet/api"
)

// Guests execute CPUID themselves, so they see more features than gVisor knows of and
// compares when it loads a kernel.

// ProcessorFeatures returns the features of this machine's processor, by the names that
// package cpu has for them.
func ProcessorFeatures() (names []string) {
	v := reflect.ValueOf(cpu.X86)
	if runtime.GOARCH == "arm64" {
		v = reflect.ValueOf(cpu.ARM64)
	}
	for i := range v.NumField() {
		name := strings.TrimPrefix(v.Type().Field(i).Name, "Has")
		if f := v.Field(i); f.Kind() == reflect.Bool && f.Bool() && !slices.Contains(hiddenFeatures, name) {
			names = append(names, strings.ToLower(name))
		}
	}
	return names
}

// hiddenFeatures are features of arm64 that gVisor does not show to guests: they need not be where a snapshot is
// restored.
var hiddenFeatures = []string{"SVE", "SVE2", "CPUID", "EVTSTRM"}

// oldArchitecture is that of snapshots which do not name one.
const oldArchitecture = "amd64"

// checkArchitecture refuses a snapshot of another architecture: its memory has the code of its programs.
func checkArchitecture(made, here string) error {
	if made = cmp.Or(made, oldArchitecture); made != here {
		return api.Errorf(api.CodeUnsupported, "its programs are of architecture %s, this machine is %s: restore it on a machine of that architecture", made, here)
	}
	return nil
}

// checkProcessor refuses a snapshot whose guests have seen features that this processor
// does not have. Snapshots of earlier versions do not say which features were seen.
func checkProcessor(seen, here []string) error {
	missing := slices.DeleteFunc(slices.Clone(seen), func(f string) bool { return slices.Contains(here, f) })
	if len(missing) > 0 {
		return api.Errorf(api.CodeUnsupported, "this processor lacks features that the sandbox has seen and may use: %s", strings.Join(missing, ", "))
	}
	return nil
}
