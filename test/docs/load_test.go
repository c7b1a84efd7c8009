package docs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// TestClientLoad makes many calls at once, and as many children as a quota allows.
func TestClientLoad(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	base := newUser(t, d.client())
	t.Run("200 commands at once", func(t *testing.T) {
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				res, err := base.Processes.Exec(t.Context(), base.id, api.ExecRequest{Shell: fmt.Sprint("echo ", i)})
				if err != nil || res.Stdout != fmt.Sprint(i, "\n") {
					t.Errorf("command %d: %+v, %v", i, res, err)
				}
			})
		}
		all.Wait()
	})
	t.Run("what it cost", func(t *testing.T) {
		if text, err := base.Metrics(t.Context()); err != nil || !strings.Contains(text, `ramet_operations_total{code="ok",operation="exec"} 200`) {
			t.Errorf("%v: the metrics have no 200 commands: %s", err, text)
		}
	})
	t.Run("a fork bomb of clients", func(t *testing.T) {
		const most = 12
		token := take(base.Tokens.Create(base.ctx, api.TokenRequest{Tenant: "bombs", Scope: api.ScopeAdmin}))(base)
		take(base.Tenants.GiveImage(base.ctx, "bombs", api.GiveRequest{Image: "python"}))(base)
		take(base.Tenants.Update(base.ctx, "bombs", api.TenantUpdate{Quota: &api.Quota{Sandboxes: most}}))(base)
		theirs := take(base.As(token.Secret, ""))(base)
		defer theirs.Close()
		var (
			bombs sync.WaitGroup
			mu    sync.Mutex
			made  = []string{newUser(t, theirs).id}
		)
		// bomb forks a sandbox, and has its children do the same, until it is refused.
		var bomb func(id string)
		bomb = func(id string) {
			for {
				forked, err := theirs.Sandboxes.Fork(t.Context(), id, api.ForkRequest{Count: 2})
				var refused *api.Error
				switch {
				case errors.As(err, &refused) && refused.Code == api.CodeLimit && refused.Exceeded != nil && refused.Exceeded.Limit == "sandboxes" && refused.Exceeded.Of == "tenant bombs" && refused.Exceeded.Max == most:
					return
				case err != nil:
					t.Errorf("a refusal: %v (%s)", err, api.CodeOf(err))
					return
				}
				for _, child := range forked.Children {
					if child.Error != nil {
						t.Errorf("a child: %v", child.Error)
						return
					}
					mu.Lock()
					made = append(made, child.Sandbox.ID)
					mu.Unlock()
					bombs.Go(func() { bomb(child.Sandbox.ID) })
				}
			}
		}
		bombs.Go(func() { bomb(made[0]) })
		bombs.Wait()
		if len(made) > most || len(made) < most-1 {
			t.Errorf("%d sandboxes were made, of at most %d", len(made), most)
		}
		for _, id := range made[1:] {
			if err := theirs.Sandboxes.Destroy(base.ctx, id); err != nil {
				t.Error(err)
			}
		}
		// Others are not in the way.
		if res, err := base.Processes.Exec(base.ctx, base.id, api.ExecRequest{Argv: []string{"true"}}); err != nil || !res.OK {
			t.Errorf("another tenant: %+v, %v", res, err)
		}
	})
}

// envStreams has the test binary be the client of TestClientStreams, so that its memory is its own.
const envStreams = "RAMET_TEST_STREAMS"

// TestClientStreams has much go to a sandbox and come back, and looks at the memory that the client and
// the daemon need for it.
func TestClientStreams(t *testing.T) {
	if of := os.Getenv(envStreams); of != "" {
		address, id, _ := strings.Cut(of, " ")
		streamAll(t, address, id)
		return
	}
	t.Parallel()
	d := newDaemon(t)
	base := newUser(t, d.client())
	self := exec.Command(os.Args[0], "-test.run=^TestClientStreams$", "-test.v")
	self.Env = append(os.Environ(), envStreams+"=unix:"+d.socket()+" "+base.id, fmt.Sprint("RAMET_TEST_DAEMON=", d.cmd.Process.Pid))
	out, err := self.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// streamAll sends and receives bytes in each way that is not bounded, by a client of its own.
func streamAll(t *testing.T, address, id string) {
	// Beyond what a small stream needs, a large one may need so much more.
	const growth = 24 << 10 // KiB
	large := int64(64 << 20)
	if os.Getenv("RAMET_SOAK") != "" {
		large = 1 << 30
	}
	c, err := client.New(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	u := &user{T: t, Client: c, ctx: t.Context(), id: id}
	file := api.FileRef{Path: "/srv/streamed"}
	ways := []struct {
		name string
		do   func(size int64) (got int64)
	}{
		{"write", func(size int64) int64 {
			return take(u.Files.Write(u.ctx, id, api.WriteRequest{FileRef: file}, &zeros{size}))(u).Size
		}},
		{"read", func(int64) int64 {
			body, _, err := u.Files.Read(u.ctx, id, file)
			u.must(err)
			defer body.Close()
			return take(io.Copy(io.Discard, body))(u)
		}},
		{"output", func(size int64) int64 {
			var n counter
			take(u.Processes.ExecStream(u.ctx, id, api.ExecRequest{Argv: []string{"head", "-c", strconv.FormatInt(size, 10), "/dev/zero"}}, api.ExecIO{Stdout: &n}))(u)
			return int64(n)
		}},
		{"input", func(size int64) int64 {
			var said bytes.Buffer
			take(u.Processes.ExecStream(u.ctx, id, api.ExecRequest{Argv: []string{"wc", "-c"}}, api.ExecIO{Stdin: &zeros{size}, Stdout: &said}))(u)
			return take(strconv.ParseInt(strings.TrimSpace(said.String()), 10, 64))(u)
		}},
	}
	processes := map[string]string{"client": "self", "daemon": os.Getenv("RAMET_TEST_DAEMON")}
	for _, size := range []int64{8 << 20, large} {
		before := map[string]int64{}
		for name, pid := range processes {
			before[name] = peak(u, pid)
		}
		for _, way := range ways {
			if got := way.do(size); got != size {
				t.Errorf("%s: %d bytes of %d", way.name, got, size)
			}
			for name, pid := range processes {
				grown := peak(u, pid) - before[name]
				t.Logf("%s of %d MiB: the %s has grown by %d KiB", way.name, size>>20, name, grown)
				if size == large && grown > growth {
					t.Errorf("the %s has grown by %d KiB at the %s of %d MiB", name, grown, way.name, size>>20)
				}
			}
		}
	}
}

// peak returns the most memory that a process ever had, in KiB.
func peak(u *user, pid string) int64 {
	u.Helper()
	status := string(take(os.ReadFile("/proc/" + pid + "/status"))(u))
	_, rest, _ := strings.Cut(status, "VmHWM:")
	return take(strconv.ParseInt(strings.Fields(rest)[0], 10, 64))(u)
}

// zeros are so many bytes.
type zeros struct{ left int64 }

// Read implements io.Reader.
func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	clear(p[:n])
	z.left -= n
	return int(n), nil
}

// counter counts what is written to it.
type counter int64

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
