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
