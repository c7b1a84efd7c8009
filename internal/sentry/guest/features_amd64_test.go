package guest

import (
	"testing"

	"gvisor.dev/gvisor/pkg/cpuid"
)

// TestHostFeatures compares what is kept of the processor with all that gVisor has.
func TestHostFeatures(t *testing.T) {
	cpuid.Initialize()
	all, kept := cpuid.HostFeatureSet().Fixed(), hostFeatures()
	for in, out := range all.Function.(cpuid.Static) {
		if got := kept.Query(in); got != out {
			t.Errorf("leaf %+v is %+v, not %+v", in, got, out)
		}
	}
	if len(kept.Subtract(all)) > 0 || len(all.Subtract(kept)) > 0 || kept.FlagString() != all.FlagString() {
		t.Errorf("it has the features %s, not %s", kept.FlagString(), all.FlagString())
	}
	if n, of := len(kept.Function.(cpuid.Static)), len(all.Function.(cpuid.Static)); n > of/2 {
		t.Errorf("%d of %d leaves are kept", n, of)
	}
}

// moreFeatures returns those of a processor that has some more, and their names.
func moreFeatures(*testing.T) (cpuid.FeatureSet, string) {
	return cpuid.HostFeatureSet().ToStatic().Add(cpuid.X86Feature3DNOW).Add(cpuid.X86FeatureLWP).ToFeatureSet(), "3dnow, lwp"
}
