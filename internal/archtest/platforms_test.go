package archtest

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// architectures are those that Ramet is built for.
var architectures = []string{"amd64", "arm64"}

// TestArchitecturesArePairs has each file for one architecture be there for the other, too.
func TestArchitecturesArePairs(t *testing.T) {
	all, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, f := range all {
		if ext := path.Ext(f); ext == ".go" || ext == ".s" {
			if name, arch := architectureOf(f); arch != "" && !slices.Contains(found[name], arch) {
				found[name] = append(found[name], arch)
			}
		}
	}
	if len(found) < 5 {
		t.Errorf("files for architectures: %v", found)
	}
	for name, archs := range found {
		if !strings.HasSuffix(name, "_test") && len(archs) < len(architectures) {
			t.Errorf("%s: there is a file for %v, and none for the others of %v", name, archs, architectures)
		}
	}
}

// architectureOf returns the name of a file without its architecture, and that.
func architectureOf(file string) (name, arch string) {
	base := strings.TrimSuffix(file, path.Ext(file))
	test := strings.HasSuffix(base, "_test")
	base = strings.TrimSuffix(base, "_test")
	for _, a := range architectures {
		if rest, ok := strings.CutSuffix(base, "_"+a); ok {
			if test {
				rest += "_test"
			}
			return rest, a
		}
	}
	return "", ""
}

// ofArchitecture are names of gVisor, Linux and Go that only one architecture has.
var ofArchitecture = regexp.MustCompile(`\b(Rip|Rax|Rsp|Rcx|Rdi|Rsi|R11|Eflags|Orig_rax|Fs_base|OrigR0|TPIDR_EL0|Pstate|SYS_ARCH_PRCTL|` +
	`ARCH_[SG]ET_\w+|FP_XSTATE\w*|EM_X86_64|EM_AARCH64|AUDIT_ARCH_\w+|X86Feature\w*|ARM64Feature\w*|cpuid\.(Static|In|Out)|arch\.(AMD64|ARM64))\b`)

// ofPlatform are names of one of gVisor's platforms in code.
var ofPlatform = regexp.MustCompile(`"systrap"|platform/systrap|platform/kvm|\bsystraptuning\.|\bfpstate\.New`)

// platformPackages know the platforms.
var platformPackages = []string{"internal/sentry/platforms", "internal/sentry/birth", "internal/sentry/fpstate", "internal/sentry/systraptuning"}

// TestSentryKnowsNeitherPlatformNorArchitecture has both named only where they belong.
func TestSentryKnowsNeitherPlatformNorArchitecture(t *testing.T) {
	for _, s := range goFiles(t) {
		if s.isTest() || s.dir != "internal/sentry" && !strings.HasPrefix(s.dir, "internal/sentry/") {
			continue
		}
		for _, name := range foreignNames(s.file, s.dir, string(s.text)) {
			t.Errorf("%s names %s: that belongs into a file of the architecture, or a package of the platform", s.file, name)
		}
	}
}

// foreignNames returns the names in a file of the sentry that belong elsewhere.
func foreignNames(file, dir, text string) (names []string) {
	var code strings.Builder
	for line := range strings.Lines(text) {
		before, _, _ := strings.Cut(line, "//")
		code.WriteString(before + "\n")
	}
	if _, arch := architectureOf(file); arch == "" {
		names = ofArchitecture.FindAllString(code.String(), -1)
	}
	if !slices.Contains(platformPackages, dir) {
		names = append(names, ofPlatform.FindAllString(code.String(), -1)...)
	}
	return names
}

func TestForeignNamesAreFound(t *testing.T) {
	for _, c := range []struct {
		file, text string
		want       int
	}{
		{"internal/sentry/proc/x.go", "regs.Rip = 1 // and Rax", 1},
		{"internal/sentry/proc/x_amd64.go", "regs.Rip = 1", 0},
		{"internal/sentry/proc/x.go", "ac.IP()", 0},
		{"internal/sentry/guest/x.go", `import _ "gvisor.dev/gvisor/pkg/sentry/platform/systrap"`, 1},
		{"internal/sentry/platforms/x.go", `platform.Lookup("systrap")`, 0},
		{"internal/sentry/x.go", "iso.Systrap = api.LayerOn", 0},
	} {
		if got := foreignNames(c.file, path.Dir(c.file), c.text); len(got) != c.want {
			t.Errorf("%s with %q: %q", c.file, c.text, got)
		}
	}
}
