package sentry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"ramet.dev/ramet/internal/sentry/guest"
)

// prepared is what all sentries on a machine have in common and what takes long to
// make. The daemon has one process make it ("ramet-sentry sentry prepare") and gives
// it to all.
//
// It is encoded as the length of processor in four bytes, processor, and the filter.
type prepared struct {
	processor []byte // for guest.Initialize
	filter    []byte // for installFilter
}

// printPrepared writes it to standard output.
func printPrepared() int {
	if err := prepare(os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "sentry: %v\n", err)
		return 1
	}
	return 0
}

func prepare(w io.Writer) error {
	processor, err := guest.AskProcessor()
	if err != nil {
		return err
	}
	instrs, err := compileFilter()
	if err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(processor)))
	b = append(b, processor...)
	_, err = w.Write(append(b, encodeFilter(instrs)...))
	return err
}

// readPrepared reads what printPrepared wrote. Other sentries have the same file
// open, and share its offset.
func readPrepared(f *os.File) (*prepared, error) {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read what is prepared: %w", err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read what is prepared: %w", err)
	}
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, fmt.Errorf("what is prepared has %d bytes", len(b))
	}
	n := binary.LittleEndian.Uint32(b)
	return &prepared{processor: b[4 : 4+n], filter: b[4+n:]}, nil
}
