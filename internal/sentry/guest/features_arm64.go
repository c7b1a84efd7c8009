package guest

import "gvisor.dev/gvisor/pkg/cpuid"

// hostFeatures returns the features of the processor, as gVisor saves them: the words of AT_HWCAP.
func hostFeatures() cpuid.FeatureSet { return cpuid.HostFeatureSet().Fixed() }
