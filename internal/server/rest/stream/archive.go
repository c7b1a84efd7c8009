package stream

import (
	"net/http"
	"time"
)

// TarType is the media type of an archive.
const TarType = "application/x-tar"

// readTimeout is how long a client may take to read a piece of an archive: a client that reads
// nothing would keep its turn, and pinned files, for ever.
const readTimeout = time.Minute

// Archive begins an answer with its first write.
type Archive struct {
	w         http.ResponseWriter
	conn      *http.ResponseController
	timeout   time.Duration // of each write
	MediaType string
	Begun     bool
}

func (s *Streams) Archive(w http.ResponseWriter, mediaType string) *Archive {
	return &Archive{w: w, conn: http.NewResponseController(w), timeout: s.ReadTimeout, MediaType: mediaType}
}

// Close leaves the connection for other answers.
func (b *Archive) Close() { _ = b.conn.SetWriteDeadline(time.Time{}) } // tests have no connection

// Write implements io.Writer.
func (b *Archive) Write(p []byte) (int, error) {
	_ = b.conn.SetWriteDeadline(time.Now().Add(b.timeout)) // likewise
	if !b.Begun {
		b.Begun = true
		b.w.Header().Set("Content-Type", b.MediaType)
		b.w.WriteHeader(http.StatusOK)
	}
	return b.w.Write(p)
}
