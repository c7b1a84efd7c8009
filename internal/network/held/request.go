package held

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

// State is where a request stands.
type State string

// The states.
const (
	Waiting  State = "waiting"  // for a verdict
	Released State = "released" // it will be sent
	Sending  State = "sending"  // the server may have it
	Sent     State = "sent"     // the server has answered
	Unknown  State = "unknown"  // it may have been sent, and never is again by itself
	Dropped  State = "dropped"  // it is never sent
	Expired  State = "expired"  // it was not decided in time, and is never sent
)

// Finished reports whether nothing can become of a request any more.
func (s State) Finished() bool { return s == Sent || s == Dropped || s == Expired }

// Origin says whose request it is and where it goes.
type Origin struct {
	Sandbox string `json:"sandbox"`
	// Run is the registration of the sandbox: it has another one when it is woken or rolled back.
	Run  string `json:"run,omitempty"`
	Name string `json:"name"` // of the server
	Port uint16 `json:"port"`
	TLS  bool   `json:"tls"`
}

// Request is a request that is or was held.
type Request struct {
	ID string `json:"id"`
	Origin
	Method string `json:"method"`
	// Target is the path with its query.
	Target  string      `json:"target"`
	Host    string      `json:"host"`
	Header  http.Header `json:"header,omitempty"`
	Trailer http.Header `json:"trailer,omitempty"`
	// Size and Digest are those of the body, which has SHA-256 in hexadecimal.
	Size   int64  `json:"size"`
	Digest string `json:"digest"`

	State State `json:"state"`
	// Number says in which order requests came.
	Number  uint64    `json:"number"`
	Created time.Time `json:"created"`
	Changed time.Time `json:"changed"`
	// Taken is when the sandbox went on with the state of a child that had made the request.
	Taken time.Time `json:"taken,omitzero"`
	// Status is that of the server's answer.
	Status int `json:"status,omitempty"`
	// Note says why a request has not been sent, or is unknown.
	Note string `json:"note,omitempty"`
}

// HTTP returns the request as it is sent to its server.
func (r *Request) HTTP(ctx context.Context, body io.Reader) (*http.Request, error) {
	scheme := "http"
	if r.TLS {
		scheme = "https"
	}
	u, err := url.ParseRequestURI(r.Target)
	if err != nil {
		return nil, fmt.Errorf("read target of held request %s: %w", r.ID, err)
	}
	u.Scheme, u.Host = scheme, net.JoinHostPort(r.Name, strconv.Itoa(int(r.Port)))
	if r.Size == 0 && len(r.Trailer) == 0 {
		body = http.NoBody
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make held request %s: %w", r.ID, err)
	}
	req.URL, req.Host, req.Header = u, r.Host, r.Header.Clone()
	if req.ContentLength = r.Size; len(r.Trailer) > 0 {
		req.ContentLength, req.Trailer = -1, r.Trailer.Clone()
	}
	return req, nil
}

var idText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

var validID = regexp.MustCompile(`^req_[a-z2-7]{16}$`)

func newID() string {
	b := make([]byte, 10)
	rand.Read(b) // it never fails
	return "req_" + idText.EncodeToString(b)
}

// ErrNotSent is wrapped by errors of a Sender that has sent nothing of a request.
var ErrNotSent = errors.New("the request was not sent")

// Sender sends requests that were released.
type Sender interface {
	// Send sends a request once. Unless its error wraps ErrNotSent, the server may have the
	// request. ctx is over only when the body of the answer need not be read any more.
	Send(ctx context.Context, r *Request, body io.Reader) (*http.Response, error)
}

// Limits bound what is held. All of them are per sandbox.
type Limits struct {
	Requests int           // that are not finished
	Bytes    int64         // of their bodies
	Body     int64         // of one body
	Age      time.Duration // after which a request expires
	Finished int           // records that are kept of finished requests
}

// DefaultLimits are those of a sandbox.
var DefaultLimits = Limits{Requests: 256, Bytes: 256 << 20, Body: 64 << 20, Age: 7 * 24 * time.Hour, Finished: 256}
