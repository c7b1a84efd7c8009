package front

import (
	"io"
	"net/http"
	"time"

	"ramet.dev/ramet/api"
)

const (
	// bodyTime is how long a client may take to send the next part of a body.
	bodyTime = 30 * time.Second
	// strangerTime is how long a client may take to send a body before its request is admitted.
	strangerTime = 2 * time.Second
)

// Stranger bounds the body of a request that is not admitted: a server reads what is left of a body before it answers,
// and a slow client would hold the connection without a key. Admitted bodies get another bound from Body.
func Stranger(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangerTime)) // tests have none
	}
}

// Unbound removes the bound of Stranger, for requests whose reader decides how long it waits.
func Unbound(w http.ResponseWriter) { _ = http.NewResponseController(w).SetReadDeadline(time.Time{}) }

// Body gives an admitted request a body of at most limit bytes whose parts arrive in time. With limit 0 its reader
// counts the bytes.
func Body(w http.ResponseWriter, r *http.Request, limit int64) {
	Unbound(w)
	if limit > 0 {
		r.Body = http.MaxBytesReader(w, r.Body, limit)
	}
	r.Body = &timed{r.Body, http.NewResponseController(w)}
}

// timed is a body, each read of which has a deadline. There is none between reads: the server would take it for a lost
// client while the request is served.
type timed struct {
	io.ReadCloser
	conn *http.ResponseController
}

// Read implements io.Reader.
func (b *timed) Read(p []byte) (int, error) {
	set := b.conn.SetReadDeadline(time.Now().Add(bodyTime)) == nil
	n, err := b.ReadCloser.Read(p)
	if set {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	if err != nil && err != io.EOF {
		err = api.Errorf(api.CodeInvalid, "the body ended early: %w", err)
	}
	return n, err
}
