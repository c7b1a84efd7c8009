// Package packaging_test checks what a machine is told about Ramet: units of systemd,
// the container and the pod.
package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/storage/paths"
)

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// statements returns a file without its comments.
func statements(t *testing.T, file string) string {
	return regexp.MustCompile(`(?m)(^|\s)#.*$`).ReplaceAllString(read(t, file), "")
}

var units = []string{"systemd/ramet.service", "systemd/user/ramet.service"}

// tooNew are words that systemd may not know yet, and says so.
var tooNew = regexp.MustCompile(`Unknown key '?(name )?'?DelegateSubgroup'? in section`)

func TestUnitsAreUnderstood(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze; TestUnitsLetSandboxesLive reads the units")
	}
	for _, unit := range units {
		dir := t.TempDir()
		program := filepath.Join(dir, "ramet")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, "ramet.service")
		if err := os.WriteFile(copied, []byte(strings.ReplaceAll(read(t, unit), "/usr/local/bin/ramet", program)), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"verify", "--man=no"}
		if strings.Contains(unit, "/user/") {
			args = append(args, "--user")
		}
		cmd := exec.Command(analyze, append(args, copied)...)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
		out, err := cmd.CombinedOutput()
		said := ""
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "ramet.service") && !tooNew.MatchString(line) { // others are about the machine's own units
				said += line
			}
		}
		switch {
		case said != "":
			t.Errorf("%s: %s", unit, said)
		case err != nil:
			t.Skipf("systemd-analyze cannot work here: %v: %s", err, out)
		}
	}
}

// TestUnitsLetSandboxesLive checks what must hold for sandboxes to outlive a daemon.
func TestUnitsLetSandboxesLive(t *testing.T) {
	for _, unit := range units {
		text := statements(t, unit)
		for _, line := range []string{"KillMode=process", "Delegate=cpu memory pids", "ExecStart=/usr/local/bin/ramet serve", "UMask=0077"} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%s has no %s", unit, line)
			}
		}
		for _, word := range []string{"SystemCallFilter", "MemoryDenyWriteExecute", "ProtectHostname", "ProtectKernelTunables", "ProtectControlGroups"} {
			if strings.Contains(text, word) {
				t.Errorf("%s has %s, which sandboxes do not bear or pay for at each call", unit, word)
			}
		}
	}
	system := statements(t, units[0])
	for _, line := range []string{"RuntimeDirectoryPreserve=yes", "User=ramet", "Environment=" + paths.EnvRuntimeDir + "=/run/ramet " + paths.EnvDataDir + "=/var/lib/ramet"} {
		if !strings.Contains(system, "\n"+line+"\n") {
			t.Errorf("%s has no %s", units[0], line)
		}
	}
}

// TestNobodyIsPrivileged checks that containers are given no more than is said.
func TestNobodyIsPrivileged(t *testing.T) {
	pod, container := statements(t, "kubernetes/ramet.yaml"), statements(t, "docker/Dockerfile")
	for _, word := range []string{"privileged", "hostPath", "hostPID", "hostIPC", "hostNetwork", "add:", "procMount"} {
		if strings.Contains(pod, word) {
			t.Errorf("the pod has %s", word)
		}
	}
	for _, line := range []string{"runAsNonRoot: true", "allowPrivilegeEscalation: false", "capabilities: {drop: [ALL]}", "readOnlyRootFilesystem: true", "automountServiceAccountToken: false"} {
		if !strings.Contains(pod, line) {
			t.Errorf("the pod has no %s", line)
		}
	}
	user := regexp.MustCompile(`(?m)^USER (\d+):(\d+)$`).FindStringSubmatch(container)
	if user == nil || user[1] == "0" || !strings.Contains(pod, "runAsUser: "+user[1]+"\n") {
		t.Fatalf("the container's user is %q, and not the pod's", user)
	}
	if !strings.Contains(container, "groupadd --gid "+user[2]+" ") || !strings.Contains(container, "useradd --uid "+user[1]+" ") {
		t.Errorf("the container's user %s:%s has no name", user[1], user[2])
	}
	// Neither docker nor a pod has a first process of its own that reaps.
	if !strings.Contains(container, `ENTRYPOINT ["tini", "--", "ramet"]`) {
		t.Error("nobody reaps processes whose parents have ended")
	}
	runtime := regexp.MustCompile(paths.EnvRuntimeDir + `, value: (\S+)}`).FindStringSubmatch(pod)
	if runtime == nil || !strings.Contains(pod, "[test, -S, "+runtime[1]+"/ramet.sock]") {
		t.Errorf("the probe does not look at the socket in %q", runtime)
	}
	for _, name := range []string{paths.EnvRuntimeDir, paths.EnvDataDir} {
		if !strings.Contains(container, name+"=") || !strings.Contains(pod, name) {
			t.Errorf("%s is not set", name)
		}
	}
}

// TestTheRestrictedPodIsRestricted compares the pod of the restricted standard with the other: it
// differs in its profiles alone.
func TestTheRestrictedPodIsRestricted(t *testing.T) {
	blank := regexp.MustCompile(`(?m)^\s*\n|[ \t]+$`)
	pod := blank.ReplaceAllString(statements(t, "kubernetes/ramet.yaml"), "")
	restricted := blank.ReplaceAllString(statements(t, "kubernetes/ramet-restricted.yaml"), "")
	pod = strings.Replace(pod, "seccompProfile: {type: Unconfined}\n        appArmorProfile: {type: Unconfined}\n", "seccompProfile: {type: RuntimeDefault}\n", 1)
	if pod != restricted || strings.Contains(restricted, "Unconfined") {
		t.Errorf("the restricted pod is\n%s\nand the other, with its profiles,\n%s", restricted, pod)
	}
}

// TestContainerIsRunAsSaid checks that the manual and the Dockerfile name the same
// options.
func TestContainerIsRunAsSaid(t *testing.T) {
	said := regexp.MustCompile(`(?m)^#   docker run -d --name ramet (.*(?:\\\n.*)*) ramet$`).FindStringSubmatch(read(t, "docker/Dockerfile"))
	if said == nil {
		t.Fatal("the Dockerfile does not say how it is run")
	}
	options := strings.Join(strings.Fields(strings.NewReplacer("\\", "", "#", "").Replace(said[1])), " ")
	manual := strings.Join(strings.Fields(read(t, "../docs/operations.md")), " ")
	if line := "`docker run " + options + " ramet`"; !strings.Contains(manual, line) {
		t.Errorf("docs/operations.md has no %s", line)
	}
}
