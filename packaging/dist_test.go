package packaging_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// envDist has what is released built and installed.
const envDist = "RAMET_TEST_DIST"

// run runs a command in a directory and returns its standard output.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// TestScriptsOfThePackage has a shell read the scripts of the Debian package.
func TestScriptsOfThePackage(t *testing.T) {
	for _, script := range []string{"debian/postinst", "debian/prerm", "debian/postrm"} {
		run(t, ".", nil, "sh", "-n", script)
	}
	run(t, ".", nil, "bash", "-n", "dist.sh")
	if unit := "ExecStart=/usr/local/bin/ramet"; !strings.Contains(read(t, "dist.sh"), "s|/usr/local/bin/ramet|") || !strings.Contains(read(t, units[0]), unit) {
		t.Errorf("the package does not put the place of the program into %s", unit)
	}
}

// TestDist builds what is released twice, in clones of two names, and compares the digests. Then it
// installs the package and the wheel into a file system with nothing of this machine.
func TestDist(t *testing.T) {
	if os.Getenv(envDist) == "" {
		t.Skipf("building all packages takes minutes: make test-dist does it (%s=1)", envDist)
	}
	first := buildDist(t, "..", "one")
	second := buildDist(t, first, "another-name")
	if sums := filepath.Join("dist", "SHA256SUMS"); read(t, filepath.Join(first, sums)) != read(t, filepath.Join(second, sums)) {
		t.Errorf("two builds differ:\n%s\n%s", read(t, filepath.Join(first, sums)), read(t, filepath.Join(second, sums)))
	}
	run(t, filepath.Join(first, "dist"), nil, "sha256sum", "--check", "--quiet", "SHA256SUMS")
	for _, arch := range []string{"amd64", "arm64"} {
		for _, name := range []string{"ramet", "ramet-sentry", "ramet-guest", "ramet-gateway"} {
			if text := read(t, filepath.Join(first, "dist", "sbom", arch, name+".cdx.json")); !strings.Contains(text, `"CycloneDX"`) || !strings.Contains(text, "pkg:golang/std@") {
				t.Errorf("the document about %s for %s names no module", name, arch)
			}
		}
	}
	install(t, first)
}

// buildDist builds a clone of a repository and returns its directory.
func buildDist(t *testing.T, from, name string) string {
	dir := filepath.Join(t.TempDir(), name)
	run(t, from, nil, "git", "clone", "--quiet", ".", dir)
	run(t, dir, nil, "make", "dist")
	return dir
}

// install makes a root file system of Debian, installs the packages there, and has an ordinary user
// make a sandbox, fork it and ask both.
func install(t *testing.T, built string) {
	if os.Getuid() != 0 {
		t.Skip("only root installs packages")
	}
	home := t.TempDir()
	env := []string{"XDG_RUNTIME_DIR=" + filepath.Join(home, "run"), "XDG_DATA_HOME=" + filepath.Join(home, "data"), "XDG_CONFIG_HOME=" + filepath.Join(home, "config")}
	for _, dir := range []string{"run", "data", "config", "root"} {
		if err := os.Mkdir(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ramet, root := filepath.Join(built, "bin", "ramet"), filepath.Join(home, "root")
	if out, err := exec.CommandContext(t.Context(), ramet, "doctor").CombinedOutput(); err != nil {
		t.Skipf("this machine does not run sandboxes: %s", out)
	}
	t.Cleanup(func() { exec.Command("pkill", "-9", "-f", "^"+ramet+" ").Run() })
	run(t, home, env, ramet, "image", "build", "clean", "--include", "dpkg,python3,python3-venv,mount,passwd")
	run(t, home, env, ramet, "create", "clean", "--name", "clean")
	run(t, home, env, ramet, "export", "clean", "--format", "tar", "-o", "clean.tar")
	run(t, home, env, ramet, "rm", "clean")
	run(t, home, nil, "tar", "-C", root, "-xpf", "clean.tar")
	run(t, home, nil, "sh", "-euc", `
		mkdir root/packages
		cp "$1"/*_$(dpkg --print-architecture).deb root/packages/
		python3 -m pip --quiet download --dest root/packages "$1"/*manylinux*_$(uname -m).whl
		mv clean.tar root/
		chmod 755 root && chmod -R a+rX root/packages root/clean.tar`, "sh", filepath.Join(built, "dist"))
	out := run(t, home, nil, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", inside, "sh", root)
	if want := "package 42\nwheel 42 42\n"; out != want {
		t.Errorf("in the file system that they were installed in: %q, not %q", out, want)
	}
}

// inside is run in name spaces of its own, and goes on in the root file system that it is given. It
// ends with all that it has started.
const inside = `
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p old && pivot_root . old && cd /
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
umount -l /old
dpkg -i packages/*.deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log >&2; exit 1; }
useradd --create-home user
mkdir -m 700 /run/user && chown user /run/user
cat >/tmp/try <<'.'
export XDG_RUNTIME_DIR=/run/user HOME=/home/user
cd
zcat /usr/share/man/man1/ramet-fork.1.gz | grep -q memory
test -s /usr/share/bash-completion/completions/ramet
test -s /usr/lib/systemd/system/ramet.service
grep -q /usr/bin/ramet /usr/lib/systemd/system/ramet.service
ramet image import /clean.tar --name clean >/dev/null
ramet create clean --name base >/dev/null
ramet fork base --name child >/dev/null
echo package $(ramet exec child -- python3 -c 'print(6 * 7)')
ramet rm base child >/dev/null
python3 -m venv env
env/bin/pip install --quiet --no-index --find-links /packages /packages/ramet-*-manylinux*.whl
cat >try.py <<'/'
from ramet import Sandbox
with Sandbox.create("clean") as base:
    base.run_code("x = 6")
    print("wheel", *[t.run_code("x * 7").value for t in base.fork(2)])
/
env/bin/python try.py
.
su user -c "sh -eu /tmp/try"
`
