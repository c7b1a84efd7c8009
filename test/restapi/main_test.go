package restapi

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for something that should happen soon, on a machine that may
// be busy with something else.
const patience = 60 * time.Second

// daemon is a ramet of this repository that serves on loopback, with the image "box".
type daemon struct {
	program string
	env     []string
	cmd     *exec.Cmd
	url     string
	said    bytes.Buffer // what it wrote; to be read when it has ended
}

var (
	shared     *daemon
	sharedErr  error
	startOnce  sync.Once
	sharedDirs []string
)

func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		if err := shared.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the daemon:", err)
			code = max(code, 1)
		}
	}
	for _, dir := range sharedDirs {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// theDaemon returns the one that all tests use, which the first of them starts.
func theDaemon(t *testing.T) *daemon {
	t.Helper()
	startOnce.Do(func() { shared, sharedErr = startDaemon() })
	if sharedErr != nil {
		t.Fatal(sharedErr)
	}
	return shared
}

func startDaemon() (*daemon, error) {
	dir, err := os.MkdirTemp("", "ramet-rest-") // short, as sockets lie below it
	if err != nil {
		return nil, err
	}
	sharedDirs = append(sharedDirs, dir)
	for _, d := range []string{"run", "data"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	d := &daemon{program: filepath.Join(dir, "ramet"), env: append(os.Environ(), "XDG_RUNTIME_DIR="+filepath.Join(dir, "run"), "XDG_DATA_HOME="+filepath.Join(dir, "data"))}
	for program, of := range map[string]string{d.program: "../../cmd/ramet", filepath.Join(dir, "guest"): "../guest"} {
		build := exec.Command("go", "build", "-o", program, of)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w: %s", of, err, out)
		}
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	d.url = "http://" + address
	d.cmd = exec.Command(d.program, "serve", "--listen", address)
	d.cmd.Env, d.cmd.Stdout, d.cmd.Stderr = d.env, &d.said, &d.said
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	if err := eventually(d.ready); err != nil {
		_ = d.stop()
		return nil, fmt.Errorf("the daemon does not answer: %w: %s", err, d.said.String())
	}
	image := filepath.Join(dir, "box.tar")
	if err := writeImage(image, filepath.Join(dir, "guest")); err != nil {
		return d, err
	}
	_, err = d.ramet("image", "import", "box", image)
	return d, err
}

// freeAddress returns an address of loopback that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// ready asks whether the daemon takes requests.
func (d *daemon) ready() error {
	resp, err := http.Get(d.url + "/readyz")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// eventually waits until check returns nil, and returns what it said last if that is long
// in coming.
func eventually(check func() error) error {
	until := time.Now().Add(patience)
	for {
		err := check()
		if err == nil || time.Now().After(until) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// stop removes what there is and ends the daemon.
func (d *daemon) stop() error {
	ids, err := d.ramet("ls", "-q", "--all-tenants")
	if err == nil && strings.TrimSpace(ids) != "" {
		_, err = d.ramet(append([]string{"rm"}, strings.Fields(ids)...)...)
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	ended := time.AfterFunc(patience, func() { _ = d.cmd.Process.Kill() })
	defer ended.Stop()
	if waited := d.cmd.Wait(); err == nil {
		err = waited
	}
	return err
}

// ramet runs a command of the owner's, and returns what it wrote.
func (d *daemon) ramet(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.program, args...)
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr = d.env, &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ramet %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// token makes a token and returns its secret.
func (d *daemon) token(t *testing.T, args ...string) string {
	t.Helper()
	out, err := d.ramet(append([]string{"token", "create", "--json"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	var issued struct{ Secret string }
	if err := json.Unmarshal([]byte(out), &issued); err != nil || issued.Secret == "" {
		t.Fatalf("%v: %s", err, out)
	}
	return issued.Secret
}

// document writes the OpenAPI document to a file of the test's.
func (d *daemon) document(t *testing.T) string {
	t.Helper()
	resp, err := http.Get(d.url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	doc, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer // so that who complains says where
	if err := json.Indent(&lines, doc, "", " "); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "openapi.json")
	if err := os.WriteFile(path, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeImage packs the program of test/guest.
func writeImage(path, program string) error {
	guest, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []string{"bin", "etc", "root", "srv", "tmp"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/guest", Mode: 0o755, Size: int64(len(guest))}); err != nil {
		return err
	}
	if _, err := w.Write(guest); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
