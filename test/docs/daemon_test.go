package docs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// daemon is a daemon that the clients of tests use, in directories of its own, with the image of
// the documents.
type daemon struct {
	t    *testing.T
	dir  string
	args []string // of serve
	cmd  *exec.Cmd
}

// newDaemon starts a daemon, which ends with the test. It must have no sandboxes then.
func newDaemon(t *testing.T, args ...string) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "ramet-docs-") // short, as sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, args: args}
	t.Cleanup(d.end)
	for _, name := range []string{"run", "data"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyImages(filepath.Join(imageDir(t), "ramet", "images"), filepath.Join(dir, "data", "ramet", "images")); err != nil {
		t.Fatal(err)
	}
	d.start()
	return d
}

// start starts the program, and waits until it answers.
func (d *daemon) start() {
	d.t.Helper()
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(filepath.Join(programs, "ramet"), append([]string{"serve"}, d.args...)...)
	d.cmd.Env, d.cmd.Stdout, d.cmd.Stderr = environment(d.dir), log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	c := d.client()
	if !eventually(time.Minute, func() bool { _, err := c.Health(context.Background()); return err == nil }) {
		said, _ := os.ReadFile(log.Name())
		d.t.Fatalf("the daemon does not answer: %s", said)
	}
}

// kill ends the daemon at once. Its sandboxes go on.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait() // it says that the process was killed
}

// killSandboxes kills the processes that sandboxes of the daemon are, and those that are ready to
// become one: each leads its session, and writes to a log in the directories of the daemon.
func (d *daemon) killSandboxes() {
	d.t.Helper()
	outputs, err := filepath.Glob("/proc/[0-9]*/fd/1")
	if err != nil {
		d.t.Fatal(err)
	}
	killed := 0
	for _, output := range outputs {
		log, err := os.Readlink(output)
		if err != nil || !strings.HasPrefix(log, filepath.Join(d.dir, "run")) || filepath.Base(log) == "zygote.log" {
			continue // it has ended, is another user's, or no sandbox
		}
		pid, err := strconv.Atoi(strings.Split(output, "/")[2])
		if session, _ := unix.Getsid(pid); err == nil && session == pid && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		d.t.Fatal("no sandbox has a process that can be found")
	}
}

func (d *daemon) end() {
	if d.cmd != nil {
		if left, err := d.client().Sandboxes.List(context.Background(), api.ListFilter{}); err != nil || len(left) > 0 {
			said, _ := os.ReadFile(filepath.Join(d.dir, "log"))
			d.t.Errorf("the test left %d sandboxes: %v\n%s", len(left), err, said)
			for _, s := range left {
				_ = d.client().Sandboxes.Destroy(context.Background(), s.ID)
			}
		}
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		if err := d.cmd.Wait(); err != nil {
			d.t.Errorf("end the daemon: %v", err)
		}
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Errorf("remove the directories of the daemon: %v", err)
	}
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "run", "ramet", "ramet.sock") }

// client returns a client of the daemon's socket.
func (d *daemon) client() *client.Client {
	d.t.Helper()
	c, err := client.New("unix:" + d.socket())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(c.Close)
	return c
}

// certificate makes a certificate for 127.0.0.1 that is its own authority, and returns the arguments
// of serve for it, and its text.
func certificate(t *testing.T) (args []string, text []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	like := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, like, like, key.Public(), key)
	secret, keyErr := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err, keyErr); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) (path string, text []byte) {
		path, text = filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path, text
	}
	keyPath, _ := write("key.pem", "PRIVATE KEY", secret)
	certPath, text := write("cert.pem", "CERTIFICATE", der)
	return []string{"--tls-cert", certPath, "--tls-key", keyPath}, text
}

// freeAddress returns an address of loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
