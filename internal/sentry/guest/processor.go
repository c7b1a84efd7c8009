package guest

import (
	"encoding/binary"
	"fmt"
	"sync"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/cpuid"
)

// Under a hypervisor each CPUID instruction is an exit to it, and gVisor asks for
// all there is: 1.5 ms of processor time. As the answers are the same in all
// sentries of a machine, one asks and tells the others.

// What cpuid.Initialize sets. The canary tests say what is relied upon.

//go:linkname cpuidOnce gvisor.dev/gvisor/pkg/cpuid.initOnce
var cpuidOnce sync.Once

//go:linkname hostFeatures gvisor.dev/gvisor/pkg/cpuid.hostFeatureSet
var hostFeatures cpuid.FeatureSet

//go:linkname readProcessorFrequency gvisor.dev/gvisor/pkg/cpuid.readMaxCPUFreq
func readProcessorFrequency()

//go:linkname readHardwareCapabilities gvisor.dev/gvisor/pkg/cpuid.initHWCap
func readHardwareCapabilities()

// AskProcessor returns what CPUID says, for Initialize.
func AskProcessor() ([]byte, error) {
	cpuid.Initialize()
	known, ok := cpuid.HostFeatureSet().Function.(cpuid.Static)
	if !ok {
		return nil, fmt.Errorf("gVisor keeps no table of CPUID's answers")
	}
	var b []byte
	for in, out := range known {
		for _, v := range [...]uint32{in.Eax, in.Ecx, out.Eax, out.Ebx, out.Ecx, out.Edx} {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
	}
	return b, nil
}

// initializeProcessor is cpuid.Initialize with the answers of AskProcessor.
func initializeProcessor(answers []byte) error {
	known, err := parseAnswers(answers)
	if err != nil {
		return err
	}
	cpuidOnce.Do(func() {
		hostFeatures = known.ToFeatureSet()
		readProcessorFrequency()
		readHardwareCapabilities()
	})
	return nil
}

func parseAnswers(b []byte) (cpuid.Static, error) {
	const size = 24 // of an answer
	if len(b) == 0 || len(b)%size != 0 {
		return nil, fmt.Errorf("answers of CPUID have %d bytes", len(b))
	}
	known := make(cpuid.Static, len(b)/size)
	for ; len(b) > 0; b = b[size:] {
		le := binary.LittleEndian
		known[cpuid.In{Eax: le.Uint32(b), Ecx: le.Uint32(b[4:])}] = cpuid.Out{
			Eax: le.Uint32(b[8:]), Ebx: le.Uint32(b[12:]), Ecx: le.Uint32(b[16:]), Edx: le.Uint32(b[20:]),
		}
	}
	return known, nil
}
