package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/therootcompany/xz"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/erofs"
)

// Errors that a user may see are *api.Error: CodeHostile for input that
// breaks a rule or limit, CodeCorrupt for damaged or truncated input and for
// contents that do not match their digest, CodeUnsupported for formats that are
// not known, and CodeNotFound, CodeConflict, CodeInvalid, CodeUnavailable and
// CodeNoSpace in their plain sense.

func refused(format string, args ...any) error {
	return api.Errorf(api.CodeHostile, format, args...)
}

func corrupt(format string, args ...any) error {
	return api.Errorf(api.CodeCorrupt, format, args...)
}

// readError gives an error of a decoder a code. Errors of the host, and errors with a code,
// stay as they are.
func readError(err error) error {
	var classed *api.Error
	var host syscall.Errno
	switch {
	case err == nil, errors.As(err, &classed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &host):
		return fmt.Errorf("read input: %w", err)
	case errors.Is(err, xz.ErrMemlimit):
		return refused("xz archive needs a dictionary of more than %d bytes", maxWindow)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return corrupt("archive is truncated: %w", io.ErrUnexpectedEOF)
	}
	return corrupt("archive is damaged: %w", err)
}

// importError gives errors of writing an image a code.
func importError(err error) error {
	var entry *erofs.EntryError
	var classed *api.Error
	switch {
	case err == nil, errors.As(err, &classed):
		return err
	case errors.As(err, &entry):
		return refused("%w", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return api.Errorf(api.CodeNoSpace, "no room for the image: %w", err)
	case errors.Is(err, erofs.ErrTooLarge):
		return refused("%w", err)
	}
	return err
}
