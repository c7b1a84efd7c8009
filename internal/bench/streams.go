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
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/workload"
)

const (
	streamBytes = 1 << 30
	// streamBlock is the size of a write of both sides.
	streamBlock = 1 << 20
	streamFile  = "/root/stream"
	streamPort  = 8000
	portWait    = 10 * time.Second
)

// streamOp sends bytes through the daemon and returns the number that arrived.
type streamOp struct {
	name, what string
	least, aim float64 // MiB/s
	run        func(t *transfer, ctx context.Context, ref string) (int64, error)
}

// streamOps are the operations in their order: the file is written before it is read.
var streamOps = []streamOp{
	{"stdout", "what a command writes to stdout", 150, 400, (*transfer).stdout},
	{"write", "writing a file of 1 GiB", 300, 800, (*transfer).write},
	{"read", "reading a file of 1 GiB", 300, 800, (*transfer).read},
	{"port", "a connection to a port", 300, 0, (*transfer).conn},
}

// transfer moves bytes between this process and a sandbox. Each of its operations returns the
// number of bytes that arrived.
type transfer struct {
	c     *client.Client
	bytes int64 // of one operation, whole blocks
}

func streamCase(op string) string { return caseStreams + "-" + op }

// streams measures the throughput into a sandbox and out of it.
func (b *bench) streams(ctx context.Context) error {
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return err
	}
	if _, err := b.c.Processes.Start(ctx, sb.ID, api.StartRequest{Argv: []string{"python3", "-c", b.stream.sender()}}); err != nil {
		return err
	}
	if err := b.meter().Settle(ctx, 1); err != nil {
		return err
	}
	for _, op := range streamOps {
		err := b.repeat(ctx, kind{name: streamCase(op.name), n: 1}, func(ctx context.Context) (sample, error) {
			s := sample{workMS: b.speed.Sample()}
			began := time.Now()
			n, err := op.run(&b.stream, ctx, sb.ID)
			if err == nil && n != b.stream.bytes {
				err = fmt.Errorf("%d bytes arrived, not %d", n, b.stream.bytes)
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

// sender returns a program that sends the bytes on each connection.
func (t *transfer) sender() string {
	return fmt.Sprintf(`import socket
listener = socket.create_server(("127.0.0.1", %d))
block = bytes(%d)
while True:
    conn, _ = listener.accept()
    for _ in range(%d):
        conn.sendall(block)
    conn.close()
`, streamPort, streamBlock, t.bytes/streamBlock)
}

func (t *transfer) stdout(ctx context.Context, ref string) (int64, error) {
	var n counter
	res, err := t.c.Processes.ExecStream(ctx, ref, api.ExecRequest{
		Argv: []string{"dd", "if=/dev/zero", "bs=" + strconv.Itoa(streamBlock), "count=" + strconv.FormatInt(t.bytes/streamBlock, 10), "status=none"},
	}, api.ExecIO{Stdout: &n})
	if err == nil && !res.OK {
		err = fmt.Errorf("dd ended with exit code %d", res.ExitCode)
	}
	return int64(n), err
}

func (t *transfer) write(ctx context.Context, ref string) (int64, error) {
	block := make([]byte, streamBlock)
	rand.Read(block) // never fails: crypto/rand ends the program instead
	blocks := make([]io.Reader, t.bytes/streamBlock)
	for i := range blocks {
		blocks[i] = bytes.NewReader(block)
	}
	info, err := t.c.Files.Write(ctx, ref, api.WriteRequest{FileRef: api.FileRef{Path: streamFile}}, io.MultiReader(blocks...))
	if err != nil {
		return 0, err
	}
	return info.Size, nil
}

func (t *transfer) read(ctx context.Context, ref string) (int64, error) {
	file, _, err := t.c.Files.Read(ctx, ref, api.FileRef{Path: streamFile})
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return drain(file)
}

func (t *transfer) conn(ctx context.Context, ref string) (int64, error) {
	conn, err := t.c.Ports.Dial(ctx, ref, streamPort, portWait)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return drain(conn)
}

// drain reads to the end. io.Discard would read 8 KiB at a time.
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

// counter counts the bytes written to it.
type counter int64

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// attaches measures how long after the return of a fork the output of an inherited process arrives.
func (b *bench) attaches(ctx context.Context) error {
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return err
	}
	p, err := b.c.Processes.Start(ctx, sb.ID, api.StartRequest{Shell: "echo started; exec sleep infinity"})
	if err != nil {
		return err
	}
	if err := firstOutput(ctx, b.c, sb.ID, p.PID); err != nil {
		return err
	}
	err = b.repeat(ctx, kind{name: caseAttach, n: 1}, func(ctx context.Context) (sample, error) { return b.attach(ctx, sb.ID, p.PID) })
	if err != nil {
		return err
	}
	return b.s.Destroy(ctx, sb.ID)
}

func (b *bench) attach(ctx context.Context, ref string, pid int) (sample, error) {
	if err := b.meter().Settle(ctx, 1); err != nil {
		return nil, err
	}
	s := sample{workMS: b.speed.Sample()}
	f, err := b.s.ForkUntouched(ctx, ref, 1)
	if err != nil {
		return nil, err
	}
	s[pauseMS], s[returnMS] = millis(f.Pause), millis(f.Return)
	began := time.Now()
	if err := firstOutput(ctx, b.c, f.Children[0].ID, pid); err != nil {
		return nil, err
	}
	s[roundtripMS] = millis(time.Since(began))
	return s, b.s.Destroy(ctx, f.IDs()...)
}

var errEnough = errors.New("the first output is there")

// firstOutput attaches to a process and detaches at its first output.
func firstOutput(ctx context.Context, c *client.Client, ref string, pid int) error {
	_, err := c.Processes.Attach(ctx, ref, pid, 0, api.AttachIO{Output: func(api.Chunk) error { return errEnough }})
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err == nil:
		return fmt.Errorf("process %d of %s ended without output", pid, ref)
	}
	return err
}
