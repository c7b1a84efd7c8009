package httpwire

import "strings"

// RequestIDHeader carries the identifier of a request, given by the client or
// made by the server.
const RequestIDHeader = "X-Request-Id"

// InterfaceHeader carries the version of the interface in every answer of a daemon, so that clients
// know it without a request of its own.
const InterfaceHeader = "X-Ramet-Interface"

// TokenHeader carries a token where Authorization is for a server in a sandbox.
const TokenHeader = "X-Ramet-Token"

// SecretPrefix begins the secrets of tokens.
const SecretPrefix = "ramet_"

// IdempotencyHeader carries a key that a client makes up for a change: the daemon
// does it once for each key, and repeats the answer.
const IdempotencyHeader = "Idempotency-Key"

// ReplayedHeader is "true" in an answer that was given before.
const ReplayedHeader = "Idempotency-Replayed"

// FileModeHeader carries the mode of a file that is read, in octal.
const FileModeHeader = "X-Ramet-File-Mode"

// WaitHeader is how long a request for a server in a sandbox waits until a process listens, in
// the form of Go's durations.
const WaitHeader = "X-Ramet-Wait"

// List is one page of a list.
type List[T any] struct {
	Items         []T    `json:"items" doc:"the page" nullable:"false"`
	NextPageToken string `json:"next_page_token,omitempty" doc:"page_token of the next page; absent on the last one"`
}

// RollbackRequest is the body of a rollback: a snapshot or a step.
type RollbackRequest struct {
	Snapshot string `json:"snapshot,omitempty" doc:"snapshot id or name"`
	Step     *int   `json:"step,omitempty" minimum:"0" doc:"number of a step of its timeline"`
}

// Interrupted is the answer to an interrupt of a context.
type Interrupted struct {
	Interrupted bool `json:"interrupted" doc:"true if a cell was running"`
}

// Accepts reports whether a client names a media type in its Accept header.
func Accepts(accept, want string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		mediaType, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(mediaType), want) {
			return true
		}
	}
	return false
}
