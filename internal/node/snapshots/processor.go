package snapshots

import (
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"

	"ramet.dev/ramet/api"
)

// Guests execute CPUID themselves, so what they see is more than what gVisor knows of and
// compares when it loads a kernel.

// ProcessorFeatures returns the features of this machine's processor, by the names that
// package cpu has for them.
func ProcessorFeatures() (names []string) {
	v := reflect.ValueOf(cpu.X86)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Bool && f.Bool() {
			names = append(names, strings.ToLower(strings.TrimPrefix(v.Type().Field(i).Name, "Has")))
		}
	}
	return names
}

// checkProcessor refuses what has seen features that are not among those of this
// processor. Snapshots of earlier versions do not say what they have seen.
func checkProcessor(seen, here []string) error {
	missing := slices.DeleteFunc(slices.Clone(seen), func(f string) bool { return slices.Contains(here, f) })
	if len(missing) > 0 {
		return api.Errorf(api.CodeUnsupported, "this processor lacks features that the sandbox has seen and may use: %s", strings.Join(missing, ", "))
	}
	return nil
}
