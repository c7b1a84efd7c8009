package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"ramet.dev/ramet/api"
)

// NoSourcesError says that no usable Debian source is configured.
type NoSourcesError struct {
	Suite    string   // the suite that was looked for, "" if unknown
	Searched []string // the files that were read
}

func (e *NoSourcesError) Error() string {
	what := "no Debian package source"
	if e.Suite != "" {
		what += fmt.Sprintf(" for suite %q", e.Suite)
	}
	where := "no apt source file exists"
	if len(e.Searched) > 0 {
		where = "looked in " + strings.Join(e.Searched, ", ")
	}
	return what + ": " + where +
		"; add one to /etc/apt/sources.list.d/debian.sources, or ask for the release that is in one"
}

// SignatureError says that a release file is not signed by a trusted key.
type SignatureError struct {
	URL      string
	Keyrings []string // the key files that were tried
	Err      error
}

func (e *SignatureError) Error() string {
	tried := "no key file was found"
	if len(e.Keyrings) > 0 {
		tried = "keys tried: " + strings.Join(e.Keyrings, ", ")
	}
	return fmt.Sprintf("verify signature of %s: %v (%s)", e.URL, e.Err, tried)
}

func (e *SignatureError) Unwrap() error { return e.Err }

// StaleError says that a release file is past the date it may be used until.
type StaleError struct {
	URL        string
	ValidUntil time.Time
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%s expired on %s; the mirror is out of date (option AllowExpired accepts it)",
		e.URL, e.ValidUntil.UTC().Format(time.RFC3339))
}

// DigestError says that data does not have the digest or size that the signed
// metadata promises.
type DigestError struct {
	What      string
	Want, Got string
}

func (e *DigestError) Error() string {
	return fmt.Sprintf("%s does not match the signed metadata: want %s, got %s", e.What, e.Want, e.Got)
}

// FetchError says that a file could not be fetched. Status is the HTTP status,
// or 0 when no response came.
type FetchError struct {
	URL    string
	Status int
	Err    error
}

func (e *FetchError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("fetch %s: HTTP status %d", e.URL, e.Status)
	}
	return fmt.Sprintf("fetch %s: %v", e.URL, e.Err)
}

func (e *FetchError) Unwrap() error { return e.Err }

// DependencyError says that a wanted package cannot be had.
type DependencyError struct {
	Wanted string   // the relation as written, such as "libc6 (>= 2.36)"
	By     []string // who wanted it, nearest first; empty: the caller's Include
	Reason string
}

func (e *DependencyError) Error() string {
	by := "the include list"
	if len(e.By) > 0 {
		by = strings.Join(e.By, ", wanted by ")
	}
	return fmt.Sprintf("package %s wanted by %s: %s", e.Wanted, by, e.Reason)
}

// ConflictError says that two selected packages exclude each other.
type ConflictError struct {
	Package, With string
	Field         string // Conflicts or Breaks
	Relation      string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("packages %s and %s exclude each other: %s has %s: %s",
		e.Package, e.With, e.Package, e.Field, e.Relation)
}

// FileConflictError says that two packages ship the same file and neither
// declares that it replaces the other.
type FileConflictError struct {
	Path          string
	First, Second string
}

func (e *FileConflictError) Error() string {
	return fmt.Sprintf("packages %s and %s both contain %s", e.First, e.Second, e.Path)
}

// MalformedError says that a file's content is not what its format allows. A
// hostile archive ends in this error too.
type MalformedError struct {
	What   string
	Detail string
}

func (e *MalformedError) Error() string { return e.What + ": " + e.Detail }

// LimitError says that something is larger than Build is willing to read.
type LimitError struct {
	What  string
	Limit int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s exceeds the limit of %d", e.What, e.Limit)
}

// Malformed makes a MalformedError with a formatted detail.
func Malformed(what, format string, args ...any) error {
	return &MalformedError{What: what, Detail: fmt.Sprintf(format, args...)}
}

// Code returns the code of the first of these errors in the chain of err.
func Code(err error) api.Code {
	table := []struct {
		target any
		code   api.Code
	}{
		{new(*NoSourcesError), api.CodeUnsupported},
		{new(*SignatureError), api.CodeHostile},
		{new(*StaleError), api.CodeHostile},
		{new(*DigestError), api.CodeCorrupt},
		{new(*FetchError), api.CodeUnavailable},
		{new(*DependencyError), api.CodeNotFound},
		{new(*ConflictError), api.CodeConflict},
		{new(*FileConflictError), api.CodeConflict},
		{new(*MalformedError), api.CodeHostile},
		{new(*LimitError), api.CodeLimit},
	}
	for _, row := range table {
		if errors.As(err, row.target) {
			return row.code
		}
	}
	return api.CodeInternal
}
