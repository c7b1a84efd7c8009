package stream

import (
	"io"
	"net/http"
	"time"

	"ramet.dev/ramet/internal/server/rest/answer"

	"ramet.dev/ramet/api"
)

// bodyTimeout is how long a client may take to send a body, or a part of a body of any length.
const bodyTimeout = 30 * time.Second

// timedBody bounds how long the body takes to arrive. The deadline must be removed when the
// body has ended, else the server would take it for a lost client.
type timedBody struct {
	io.ReadCloser
	conn  *http.ResponseController
	armed bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	if !b.armed {
		b.armed = b.conn.SetReadDeadline(time.Now().Add(bodyTimeout)) == nil
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.disarm()
	}
	if err != nil && err != io.EOF {
		err = &answer.BodyError{Err: err}
	}
	return n, err
}

func (b *timedBody) Close() error {
	b.disarm()
	return b.ReadCloser.Close()
}

func (b *timedBody) disarm() {
	if b.armed {
		b.armed = b.conn.SetReadDeadline(time.Time{}) != nil
	}
}

// BoundBody gives the body of r a deadline, which ends with the body.
func BoundBody(w http.ResponseWriter, r *http.Request) {
	r.Body = &timedBody{ReadCloser: r.Body, conn: http.NewResponseController(w)}
}

// UnboundBody removes the deadline that BoundBody added.
func UnboundBody(r *http.Request) {
	if timed, ok := r.Body.(*timedBody); ok {
		r.Body = timed.ReadCloser
	}
}

// patientBody reads for as long as the client keeps sending: each read has a deadline of its
// own.
type patientBody struct {
	io.ReadCloser
	conn *http.ResponseController
}

// Read implements io.Reader.
func (b patientBody) Read(p []byte) (int, error) {
	if err := b.conn.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = api.Errorf(api.CodeCanceled, "the body ended early: %w", err)
	}
	return n, err
}

// Upload returns the body of a request of any length, and a function that must
// be called when nothing is read from it any more.
func Upload(w http.ResponseWriter, r *http.Request) (body io.Reader, done func()) {
	conn := http.NewResponseController(w)
	UnboundBody(r)
	return patientBody{r.Body, conn}, func() { _ = conn.SetReadDeadline(time.Time{}) }
}
