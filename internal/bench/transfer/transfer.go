package transfer

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
)

// Block is the size of a write of both sides.
const Block = 1 << 20

const (
	file     = "/root/stream"
	port     = 8000
	portWait = 10 * time.Second
)

// Transfer moves bytes between this process and a sandbox. Each of its operations returns the
// number of bytes that arrived.
type Transfer struct {
	Client *client.Client
	Bytes  int64 // of one operation, whole blocks
}

// Sender returns a program that sends the bytes on each connection.
func (t *Transfer) Sender() string {
	return fmt.Sprintf(`import socket
listener = socket.create_server(("127.0.0.1", %d))
block = bytes(%d)
while True:
    conn, _ = listener.accept()
    for _ in range(%d):
        conn.sendall(block)
    conn.close()
`, port, Block, t.Bytes/Block)
}

// Stdout has a command write the bytes to its standard output.
func (t *Transfer) Stdout(ctx context.Context, ref string) (int64, error) {
	var n counter
	res, err := t.Client.Processes.ExecStream(ctx, ref, api.ExecRequest{
		Argv: []string{"dd", "if=/dev/zero", "bs=" + strconv.Itoa(Block), "count=" + strconv.FormatInt(t.Bytes/Block, 10), "status=none"},
	}, api.ExecIO{Stdout: &n})
	if err == nil && !res.OK {
		err = fmt.Errorf("dd ended with exit code %d", res.ExitCode)
	}
	return int64(n), err
}

// Write writes a file in the sandbox.
func (t *Transfer) Write(ctx context.Context, ref string) (int64, error) {
	block := make([]byte, Block)
	rand.Read(block) // never fails: crypto/rand ends the program instead
	blocks := make([]io.Reader, t.Bytes/Block)
	for i := range blocks {
		blocks[i] = bytes.NewReader(block)
	}
	info, err := t.Client.Files.Write(ctx, ref, api.WriteRequest{FileRef: api.FileRef{Path: file}}, io.MultiReader(blocks...))
	if err != nil {
		return 0, err
	}
	return info.Size, nil
}

// Read reads the file that Write has written.
func (t *Transfer) Read(ctx context.Context, ref string) (int64, error) {
	content, _, err := t.Client.Files.Read(ctx, ref, api.FileRef{Path: file})
	if err != nil {
		return 0, err
	}
	defer content.Close()
	return drain(content)
}

// Port reads from the port of Sender.
func (t *Transfer) Port(ctx context.Context, ref string) (int64, error) {
	conn, err := t.Client.Ports.Dial(ctx, ref, port, portWait)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return drain(conn)
}

// drain reads to the end. io.Discard would read 8 KiB at a time.
func drain(r io.Reader) (int64, error) {
	buf := make([]byte, Block)
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

var errEnough = errors.New("the first output is there")

// FirstOutput attaches to a process and detaches at its first output.
func FirstOutput(ctx context.Context, c *client.Client, ref string, pid int) error {
	_, err := c.Processes.Attach(ctx, ref, pid, 0, api.AttachIO{Output: func(api.Chunk) error { return errEnough }})
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err == nil:
		return fmt.Errorf("process %d of %s ended without output", pid, ref)
	}
	return err
}
