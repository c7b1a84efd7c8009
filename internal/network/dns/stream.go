package dns

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// idleStream is how long a guest may say nothing on a stream.
const idleStream = 30 * time.Second

// Serve answers the questions that come on a stream, one after the other, until the guest ends
// it (RFC 7766). told is called with each outcome.
func (c *Client) Serve(ctx context.Context, conn net.Conn, told func(Outcome)) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var size [2]byte
	for {
		if err := conn.SetDeadline(time.Now().Add(idleStream)); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, size[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("read question: %w", err)
		}
		message := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, message); err != nil {
			return fmt.Errorf("read question: %w", err)
		}
		reply, o, err := c.Answer(ctx, message, true)
		if err != nil {
			return err
		}
		told(o)
		framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)
		if err := conn.SetWriteDeadline(time.Now().Add(idleStream)); err != nil {
			return err
		}
		if _, err := conn.Write(framed); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
}
