package guest

import (
	"maps"

	"gvisor.dev/gvisor/pkg/cpuid"
)

// hostFeatures returns the features of the processor, without leaves of zeros: leaves that
// are missing read as zeros in any case, and they are three quarters of what would be saved.
func hostFeatures() cpuid.FeatureSet {
	features := cpuid.HostFeatureSet().Fixed()
	maps.DeleteFunc(features.Function.(cpuid.Static), func(_ cpuid.In, out cpuid.Out) bool { return out == cpuid.Out{} })
	return features
}
