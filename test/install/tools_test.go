package install

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/network/registries"
	"ramet.dev/ramet/test/harness"
)

// registry returns the first registry of a tool that this machine is set up with. The test is
// skipped if there is none, or if it does not answer.
func registry(t *testing.T, tool string) string {
	t.Helper()
	for _, r := range configured(t) {
		if r.Tool != tool {
			continue
		}
		address := strings.TrimSuffix(r.Address(), "/")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}, Timeout: 10 * time.Second}
		resp, err := client.Do(req)
		if err != nil {
			t.Skipf("this machine does not reach its registry of %s packages (%s): %v", tool, r.From, err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusUnauthorized {
			t.Skipf("the registry of %s packages (%s) wants a password", tool, r.From)
		}
		return address
	}
	t.Skipf("this machine is set up with no registry of %s packages", tool)
	return ""
}

// configured returns the registries that this machine is set up with.
func configured(t *testing.T) []registries.Registry {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Timeout)
	defer cancel()
	return registries.Derive(ctx, registries.Host(home, os.Environ())).Registries
}

// A bringer puts a tool into a sandbox, or skips the test.
type bringer func(n *harness.Node, ref string)

// alreadyThere is for tools that the image has.
func alreadyThere(*harness.Node, string) {}

// aptSources takes along where this host has its packages from: an image that was built of them
// does not say so.
func aptSources(n *harness.Node, ref string) {
	n.T.Helper()
	var paths []string
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources", "/usr/share/keyrings/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			n.T.Fatal(err)
		}
		paths = append(paths, found...)
	}
	put(n, ref, paths)
}

// npmArchive is the npm that runs with the Node of Debian, below a registry.
const npmArchive = "/npm/-/npm-10.9.2.tgz"

// bringNPM installs npm from its own registry: Debian's has three hundred packages.
func bringNPM(n *harness.Node, ref string) {
	n.T.Helper()
	address := registry(n.T.(*testing.T), "npm")
	shell(n, ref, "mkdir /opt/npm && curl -fsSL --retry 2 "+address+npmArchive+" | tar xz -C /opt/npm --strip-components=1 && ln -s /opt/npm/bin/npm-cli.js /usr/local/bin/npm")
}

// bringGo takes the go command of this host and its compiler along: Debian's packages are 80 MB.
func bringGo(n *harness.Node, ref string) {
	n.T.Helper()
	root := answer(n.T, "go", "env", "GOROOT")
	var paths []string
	for _, name := range []string{"bin/go", "VERSION", "go.env", "pkg/tool/*/compile"} {
		paths = append(paths, needed(n.T, root, name)...)
	}
	put(n, ref, paths)
	shell(n, ref, "ln -s "+root+"/bin/go /usr/local/bin/go")
}

// bringCargo takes cargo of this host along, and of its compiler what a library without std needs:
// Debian 12's cargo knows no registry of today.
func bringCargo(n *harness.Node, ref string) {
	n.T.Helper()
	root := answer(n.T, "rustc", "--print", "sysroot")
	var paths []string
	for _, name := range []string{"bin/cargo", "bin/rustc", "lib/librustc_driver-*.so", "lib/rustlib/*-linux-gnu/lib/libcore-*.*", "lib/rustlib/*-linux-gnu/lib/libcompiler_builtins-*.*"} {
		paths = append(paths, needed(n.T, root, name)...)
	}
	llvm, err := filepath.Glob(filepath.Join(root, "lib", "libLLVM*")) // some have it in the driver
	if err != nil {
		n.T.Fatal(err)
	}
	put(n, ref, append(paths, llvm...))
	shell(n, ref, "ln -s "+root+"/bin/cargo "+root+"/bin/rustc /usr/local/bin")
}

// answer returns what a tool of this host says. The test is skipped if it is not there.
func answer(t testing.TB, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = "/"
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("this machine has no %s: %v", argv[0], err)
	}
	return strings.TrimSpace(string(out))
}

// needed returns the files below root that a pattern means. The test is skipped if there is none.
func needed(t testing.TB, root, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Skipf("this machine's %s has no %s", root, pattern)
	}
	return paths
}

// put copies files of this host to the same places in a sandbox.
func put(n *harness.Node, ref string, paths []string) {
	n.T.Helper()
	r, w := io.Pipe()
	packed := harness.InBackground(func() error {
		err := pack(w, paths)
		w.CloseWithError(err)
		return err
	})
	_, err := n.Machine.WriteArchive(harness.AsOwner, ref, harness.At("/"), true, r)
	r.CloseWithError(io.ErrClosedPipe)
	if perr := <-packed; err != nil || perr != nil {
		n.T.Fatalf("put files into %s: %v, %v", ref, err, perr)
	}
}

// pack writes an archive of files.
func pack(to io.Writer, paths []string) error {
	w := tar.NewWriter(to)
	for _, path := range paths {
		if err := packFile(w, path); err != nil {
			return err
		}
	}
	return w.Close()
}

func packFile(w *tar.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: int64(info.Mode().Perm()), Size: info.Size(), ModTime: info.ModTime()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// tarOf packs texts by their paths.
func tarOf(t testing.TB, files []file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// file is a file of a package or project.
type file struct{ name, text string }

// project writes files into a sandbox, at a directory below /root.
func project(n *harness.Node, ref string, files []file) {
	n.T.Helper()
	if _, err := n.Machine.WriteArchive(harness.AsOwner, ref, harness.At("/root"), true, bytes.NewReader(tarOf(n.T, files))); err != nil {
		n.T.Fatalf("write a project: %v", err)
	}
}
