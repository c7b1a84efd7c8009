package snapshots

import (
	"reflect"
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
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Bool && f.Bool() {
			names = append(names, strings.ToLower(strings.TrimPrefix(v.Type().Field(i).Name, "Has")))
		}
	}
	return names
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
