package guest

import (
	"reflect"
	"testing"
	"unsafe"

	"gvisor.dev/gvisor/pkg/cpuid"
)

// moreFeatures returns those of a processor that has all, and the names of those that this one lacks.
func moreFeatures(t *testing.T) (cpuid.FeatureSet, string) {
	more := cpuid.HostFeatureSet()
	words := reflect.ValueOf(&more).Elem().FieldByName("hwCap")
	first := words.FieldByName("hwCap1")
	had := first.Uint()
	const sm3, sm4 = 1 << cpuid.ARM64FeatureSM3, 1 << cpuid.ARM64FeatureSM4
	if had&(sm3|sm4) == sm3|sm4 {
		t.Skip("this processor has all features that the test could add")
	}
	*(*uint64)(unsafe.Pointer(first.UnsafeAddr())) = had | sm3 | sm4
	switch {
	case had&sm3 != 0:
		return more, "sm4"
	case had&sm4 != 0:
		return more, "sm3"
	}
	return more, "sm3, sm4"
}
