package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/workload"
)

const (
	streamBytes = 1 << 30
	// streamBlock is what is written at a time, by both sides.
	streamBlock = 1 << 20
	streamFile  = "/root/stream"
	streamPort  = 8000
	portWait    = 10 * time.Second
)

// streamOp sends bytes through the daemon and returns how many arrived.
type streamOp struct {
	name, what string
	least, aim float64 // MiB/s
	run        func(b *bench, ctx context.Context, ref string) (int64, error)
}

// streamOps are in the order in which they run: what is read has been written.
var streamOps = []streamOp{
	{"stdout", "what a command writes to stdout", 150, 400, (*bench).streamStdout},
	{"write", "writing a file of 1 GiB", 300, 800, (*bench).streamWrite},
	{"read", "reading a file of 1 GiB", 300, 800, (*bench).streamRead},
	{"port", "a connection to a port", 300, 0, (*bench).streamConn},
}

func streamCase(op string) string { return caseStreams + "-" + op }

// streams measures how fast large amounts go into a sandbox and out of it.
func (b *bench) streams(ctx context.Context) error {
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return err
	}
	if _, err := b.c.Processes.Start(ctx, sb.ID, api.StartRequest{Argv: []string{"python3", "-c", b.sender()}}); err != nil {
		return err
	}
	if err := b.meter().settle(ctx, 1); err != nil {
		return err
	}
	for _, op := range streamOps {
		err := b.repeat(ctx, kind{name: streamCase(op.name), n: 1}, func(ctx context.Context) (sample, error) {
			s := sample{workMS: b.speed.sample()}
			began := time.Now()
			n, err := op.run(b, ctx, sb.ID)
			if err == nil && n != b.stream {
				err = fmt.Errorf("%d bytes arrived, not %d", n, b.stream)
			}
			s[mibPerSecond] = float64(n) / (1 << 20) / time.Since(began).Seconds()
			return s, err
		})
		if err != nil {
			return err
		}
	}
	return b.s.Destroy(ctx, sb.ID)
}

// sender returns a program that serves the bytes to whoever connects.
func (b *bench) sender() string {
	return fmt.Sprintf(`import socket
listener = socket.create_server(("127.0.0.1", %d))
block = bytes(%d)
while True:
    conn, _ = listener.accept()
    for _ in range(%d):
        conn.sendall(block)
    conn.close()
`, streamPort, streamBlock, b.stream/streamBlock)
}

func (b *bench) streamStdout(ctx context.Context, ref string) (int64, error) {
	var n counter
	res, err := b.c.Processes.ExecStream(ctx, ref, api.ExecRequest{
		Argv: []string{"dd", "if=/dev/zero", "bs=" + strconv.Itoa(streamBlock), "count=" + strconv.FormatInt(b.stream/streamBlock, 10), "status=none"},
	}, api.ExecIO{Stdout: &n})
	if err == nil && !res.OK {
		err = fmt.Errorf("dd ended with exit code %d", res.ExitCode)
	}
	return int64(n), err
}

func (b *bench) streamWrite(ctx context.Context, ref string) (int64, error) {
	block := make([]byte, streamBlock)
	rand.Read(block) // never fails: crypto/rand ends the program instead
	blocks := make([]io.Reader, b.stream/streamBlock)
	for i := range blocks {
		blocks[i] = bytes.NewReader(block)
	}
	info, err := b.c.Files.Write(ctx, ref, api.WriteRequest{FileRef: api.FileRef{Path: streamFile}}, io.MultiReader(blocks...))
	if err != nil {
		return 0, err
	}
	return info.Size, nil
}

func (b *bench) streamRead(ctx context.Context, ref string) (int64, error) {
	file, _, err := b.c.Files.Read(ctx, ref, api.FileRef{Path: streamFile})
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return drain(file)
}

func (b *bench) streamConn(ctx context.Context, ref string) (int64, error) {
	conn, err := b.c.Ports.Dial(ctx, ref, streamPort, portWait)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return drain(conn)
}

// drain reads to the end. io.Discard would do so 8 KiB at a time.
func drain(r io.Reader) (int64, error) {
	buf := make([]byte, streamBlock)
	for n := int64(0); ; {
		got, err := r.Read(buf)
		n += int64(got)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// counter counts what is written to it.
type counter int64

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// attaches measures how long after a fork has returned the output of an inherited process
// is there.
func (b *bench) attaches(ctx context.Context) error {
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return err
	}
	p, err := b.c.Processes.Start(ctx, sb.ID, api.StartRequest{Shell: "echo started; exec sleep infinity"})
	if err != nil {
		return err
	}
	if err := b.firstOutput(ctx, sb.ID, p.PID); err != nil {
		return err
	}
	err = b.repeat(ctx, kind{name: caseAttach, n: 1}, func(ctx context.Context) (sample, error) { return b.attach(ctx, sb.ID, p.PID) })
	if err != nil {
		return err
	}
	return b.s.Destroy(ctx, sb.ID)
}

func (b *bench) attach(ctx context.Context, ref string, pid int) (sample, error) {
	if err := b.meter().settle(ctx, 1); err != nil {
		return nil, err
	}
	s := sample{workMS: b.speed.sample()}
	f, err := b.s.ForkUntouched(ctx, ref, 1)
	if err != nil {
		return nil, err
	}
	s[pauseMS], s[returnMS] = millis(f.Pause), millis(f.Return)
	began := time.Now()
	if err := b.firstOutput(ctx, f.Children[0].ID, pid); err != nil {
		return nil, err
	}
	s[roundtripMS] = millis(time.Since(began))
	return s, b.s.Destroy(ctx, f.IDs()...)
}

var errEnough = errors.New("the first output is there")

// firstOutput attaches to a process and leaves it when it has some of its output.
func (b *bench) firstOutput(ctx context.Context, ref string, pid int) error {
	_, err := b.c.Processes.Attach(ctx, ref, pid, 0, api.AttachIO{Output: func(api.Chunk) error { return errEnough }})
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err == nil:
		return fmt.Errorf("process %d of %s ended without output", pid, ref)
	}
	return err
}
