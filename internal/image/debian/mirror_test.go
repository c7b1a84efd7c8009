package debian

import (
	"archive/tar"
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMirror builds an image from the host's own mirror and, as root, finishes
// it in a chroot.
func TestMirror(t *testing.T) {
	if os.Getenv("RAMET_TEST_MIRROR") != "1" {
		t.Skip("needs the network and a Debian mirror: set RAMET_TEST_MIRROR=1 to run it")
	}
	dir := t.TempDir()
	image := filepath.Join(dir, "image.tar")
	for _, run := range []string{"cold", "cached"} {
		opts := Options{CacheDir: filepath.Join(dir, "cache"), Include: []string{"python3", "python3-numpy"}}
		start := time.Now()
		res := buildFile(t, opts, image)
		t.Logf("%s: %d packages, %.1f MiB fetched, %.1f MiB of tar, %s", run, len(res.Packages),
			float64(res.Fetched)/(1<<20), float64(res.TarBytes)/(1<<20), time.Since(start).Round(time.Millisecond))
		if run == "cached" && res.Fetched != 0 {
			t.Errorf("the cache missed %d bytes", res.Fetched)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("built; finishing the image in a chroot needs root")
	}
	root := filepath.Join(dir, "root")
	extract(t, image, root)
	for _, s := range ConfigureSteps() {
		start := time.Now()
		out := chroot(t, root, s.Env, s.Argv...)
		t.Logf("%s: %s, %d bytes of output", s.Name, time.Since(start).Round(time.Millisecond), len(out))
	}
	if out := chroot(t, root, nil, "/usr/bin/python3", "-c", "import numpy; print(numpy.arange(4).sum())"); strings.TrimSpace(out) != "6" {
		t.Errorf("numpy says %q", out)
	}
}

func buildFile(t *testing.T, opts Options, name string) *Result {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	res, err := Build(context.Background(), opts, w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// extract unpacks what Build makes, which is a subset of tar.
func extract(t *testing.T, image, root string) {
	t.Helper()
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr := tar.NewReader(bufio.NewReaderSize(f, 1<<20))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = extractOne(root, h, tr)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// Maintainer scripts need /dev/null, and no more.
	if out, err := exec.Command("mknod", "-m", "666", filepath.Join(root, "dev/null"), "c", "1", "3").CombinedOutput(); err != nil {
		t.Skipf("built; cannot make device nodes here: %s", out)
	}
}

func extractOne(root string, h *tar.Header, body io.Reader) error {
	p := filepath.Join(root, h.Name)
	switch h.Typeflag {
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, p)
	case tar.TypeLink:
		return os.Link(filepath.Join(root, h.Linkname), p)
	case tar.TypeDir:
		if err := os.MkdirAll(p, 0o700); err != nil {
			return err
		}
	case tar.TypeReg:
		f, err := os.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, body)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	default:
		return fmt.Errorf("entry %s has the type %q", h.Name, h.Typeflag)
	}
	if err := os.Chown(p, h.Uid, h.Gid); err != nil {
		return err
	}
	mode := os.FileMode(h.Mode & 0o777)
	for bit, m := range map[int64]os.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky} {
		if h.Mode&bit != 0 {
			mode |= m
		}
	}
	return os.Chmod(p, mode)
}

func chroot(t *testing.T, root string, env []string, argv ...string) string {
	t.Helper()
	cmd := exec.Command("chroot", append([]string{root}, argv...)...)
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return string(out)
}
