package confinement

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/engine/hostuser"
)

// TestProbe asks programs that can, cannot, and are not there.
func TestProbe(t *testing.T) {
	if _, err := Probe(t.Context(), "/bin/true"); err != nil {
		t.Skipf("this machine allows no namespaces: %v", err)
	}
	if noRoot, err := Probe(t.Context(), "/bin/true"); noRoot != "" || err != nil {
		t.Errorf("a program that can: %q, %v", noRoot, err)
	}
	if noRoot, err := Probe(t.Context(), "/bin/false"); !strings.Contains(noRoot, "cannot make its root empty") || err != nil {
		t.Errorf("a program that cannot: %q, %v", noRoot, err)
	}
	if noRoot, err := Probe(t.Context(), "/nonexistent/program"); noRoot != "" || err == nil {
		t.Errorf("no program: %q, %v", noRoot, err)
	}
}

func TestWhyNoPages(t *testing.T) {
	for size, want := range map[int]string{4 << 10: "", 16 << 10: "pages of 16 KiB", 64 << 10: "pages of 64 KiB"} {
		if got := WhyNoPages(size); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("pages of %d: %q", size, got)
		}
	}
	if got := WhyNoSandboxes(); got != "" && !strings.Contains(got, ": ") {
		t.Errorf("%q has no remedy", got)
	}
}

// TestIsolateMapsWhatItMay maps the process's own user where it may become no other.
func TestIsolateMapsWhatItMay(t *testing.T) {
	var attr syscall.SysProcAttr
	if err := Isolate(&attr, false); err != nil {
		t.Fatal(err)
	}
	want, groups := os.Geteuid(), false
	if want == 0 && hostuser.MayBecome() {
		want, groups = nobody, true
	}
	if m := attr.UidMappings; len(m) != 1 || m[0].HostID != want || m[0].Size != 1 || attr.GidMappingsEnableSetgroups != groups || attr.Credential.NoSetGroups == groups {
		t.Errorf("%+v", attr)
	}
	if attr.Cloneflags&unix.CLONE_NEWUSER == 0 {
		t.Error("no user namespace")
	}
}
