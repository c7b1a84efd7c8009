package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/coder/websocket"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// openSocket opens a WebSocket.
func (c *connection) openSocket(ctx context.Context, path string) (*websocket.Conn, error) {
	conn, resp, err := websocket.Dial(ctx, c.base+path, &websocket.DialOptions{HTTPClient: c.http})
	if err != nil {
		if resp != nil {
			return nil, problemOf(resp)
		}
		return nil, connectionError(ctx, err)
	}
	conn.SetReadLimit(httpwire.MaxMessage)
	return conn, nil
}

// execSocket runs a command over a WebSocket, which carries standard input as
// well.
func (c *connection) execSocket(ctx context.Context, path string, req api.ExecRequest, streams api.ExecIO) (*api.ExecResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, err := encode(req)
	if err != nil {
		return nil, err
	}
	conn, err := c.openSocket(ctx, path)
	if err != nil {
		return nil, err
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, first); err != nil {
		return nil, connectionError(ctx, err)
	}
	// sendInput ends with the connection, or with the read it is in.
	inputErr := make(chan error, 1)
	go func() {
		err := sendInput(ctx, conn, streams.Stdin)
		if err != nil {
			inputErr <- err
			cancel()
		}
	}()
	final, err := receiveOutput(ctx, conn, streams)
	if err != nil {
		select {
		case err = <-inputErr: // the cause of the other
		default:
		}
		return nil, err
	}
	if final.Error != nil {
		return nil, final.Error
	}
	return final.Exit, nil
}

// sendInput copies standard input, and its end. The error is one of reading;
// that the connection ended is found where it is read.
func sendInput(ctx context.Context, conn *websocket.Conn, in io.Reader) error {
	buf := make([]byte, 1+httpwire.MaxChunk)
	buf[0] = byte(httpwire.StreamStdin)
	for {
		n, err := in.Read(buf[1:])
		if n > 0 {
			if conn.Write(ctx, websocket.MessageBinary, buf[:1+n]) != nil {
				return nil
			}
		}
		if err == io.EOF {
			_ = conn.Write(ctx, websocket.MessageBinary, buf[:1])
			return nil
		}
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
	}
}

// receiveOutput copies what the command writes, until the final message.
func receiveOutput(ctx context.Context, conn *websocket.Conn, streams api.ExecIO) (httpwire.Final, error) {
	var final httpwire.Final
	for {
		kind, msg, err := conn.Read(ctx)
		if err != nil {
			return final, connectionError(ctx, err)
		}
		if kind == websocket.MessageText {
			if err := json.Unmarshal(msg, &final); err != nil {
				return final, connectionError(ctx, err)
			}
			if (final.Exit == nil) == (final.Error == nil) {
				return final, connectionError(ctx, errors.New("the final message is neither a result nor an error"))
			}
			return final, nil
		}
		stream, payload, err := httpwire.ParseFrame(msg)
		if err != nil {
			return final, connectionError(ctx, err)
		}
		w := streams.Stdout
		if stream == httpwire.StreamStderr {
			w = streams.Stderr
		}
		if _, err := w.Write(payload); err != nil {
			return final, fmt.Errorf("write output: %w", err)
		}
	}
}
