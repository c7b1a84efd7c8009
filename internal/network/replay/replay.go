package replay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Limits bound what is kept of a fork.
type Limits struct {
	Answers int   // and as many different questions of each branch are counted
	Bytes   int64 // of the bodies of all answers, and of questions that are being asked
	Body    int64 // of the body of a question, and of that of an answer
	// Wait is how long a branch waits for an answer that another one is about to get; then
	// it asks for itself.
	Wait time.Duration
}

// DefaultLimits are those of a fork.
var DefaultLimits = Limits{Answers: 4096, Bytes: 64 << 20, Body: 4 << 20, Wait: time.Minute}

// key is what makes two questions the same.
type key [sha256.Size]byte

// chosen are the headers that are part of a question.
var chosen = []string{
	"Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Content-Encoding", "Content-Type", "Cookie",
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Prefer", "Range",
}

// Recorder has the answers that branches of one fork got. It is safe for concurrent use.
type Recorder struct {
	limits Limits

	mu      sync.Mutex
	answers map[key][]*answer
	count   int
	bytes   int64                  // of answers that are kept, and of bodies that are under way
	asked   map[string]map[key]int // by branch: how often
}

// answer is one that was kept or is about to be.
type answer struct {
	done chan struct{} // closed when the rest is known
	kept bool
	room int64 // bytes that count for body; of the branch that gets it

	status          int
	header, trailer http.Header
	body            []byte
}

// NewRecorder returns a recorder that has nothing.
func NewRecorder(limits Limits) *Recorder {
	return &Recorder{limits: limits, answers: map[key][]*answer{}, asked: map[string]map[key]int{}}
}

// Forget forgets how often a branch has asked.
func (r *Recorder) Forget(branch string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asked, branch)
}

// Transport returns the transport of a branch. Questions that nobody has asked go to next. realm is
// part of all questions: branches that have not the same right to an answer differ in it. So are the values of headers.
func (r *Recorder) Transport(branch, realm string, next http.RoundTripper, headers ...string) http.RoundTripper {
	names := slices.Clone(chosen)
	for _, name := range headers {
		if name = http.CanonicalHeaderKey(name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return &transport{r, branch, realm, names, next}
}

type transport struct {
	recorder *Recorder
	branch   string
	realm    string
	headers  []string // that are part of a question
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Upgrade") != "" {
		return t.next.RoundTrip(req)
	}
	k, req, body, err := t.recorder.identify(t.realm, t.headers, req)
	if err != nil {
		body.give()
		return nil, err
	}
	res, err := t.ask(k, req, body)
	if err != nil || body.unsent {
		body.give()
	}
	return res, err
}

// ask is RoundTrip for a request whose body was read.
func (t *transport) ask(k key, req *http.Request, body *joined) (*http.Response, error) {
	if body.large {
		return t.next.RoundTrip(req)
	}
	a, first := t.recorder.ask(t.branch, k)
	switch {
	case a == nil:
		return t.next.RoundTrip(req)
	case first:
		return t.record(k, a, req)
	}
	timer := time.NewTimer(t.recorder.limits.Wait)
	defer timer.Stop()
	select {
	case <-a.done:
	case <-timer.C:
		return t.next.RoundTrip(req)
	case <-req.Context().Done(): // nothing was sent
		return nil, fmt.Errorf("wait for the answer of another branch: %w", context.Cause(req.Context()))
	}
	if !a.kept {
		return t.next.RoundTrip(req)
	}
	body.unsent = true
	return a.response(req), nil
}

// identify reads the body of a request and returns the key of its question, with the request to send
// instead and its body. One that is too large, or for which there is no room, is not read to its end.
func (r *Recorder) identify(realm string, headers []string, req *http.Request) (key, *http.Request, *joined, error) {
	h := sha256.New()
	part(h, realm)
	part(h, req.Method)
	part(h, req.URL.String())
	part(h, req.Host)
	for _, name := range headers {
		part(h, name)
		for _, v := range req.Header[name] {
			part(h, "+"+v)
		}
	}
	body := &joined{recorder: r}
	if req.Body == nil || req.Body == http.NoBody {
		return key(h.Sum(nil)), req, body, nil
	}
	context.AfterFunc(req.Context(), body.give) // where nobody closes it
	var text bytes.Buffer
	limit := r.limits.Body + 1
	for text.Len() < int(limit) {
		next := min(bodyPart, limit-int64(text.Len()))
		if !r.take(next) {
			body.large = true
			break
		}
		body.room.Add(next)
		if _, err := io.CopyN(&text, req.Body, next); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return key{}, nil, body, fmt.Errorf("read body: %w", err)
		}
	}
	spare := body.room.Load() - int64(text.Len())
	body.room.Add(-spare)
	r.give(spare)
	sent := req.WithContext(req.Context()) // a transport must not change its request
	sent.Body, body.Closer = body, req.Body
	if body.large = body.large || int64(text.Len()) == limit; body.large {
		body.Reader = io.MultiReader(&text, req.Body)
		return key{}, sent, body, nil
	}
	fmt.Fprintf(h, "%d:", text.Len()) // as part, without a copy
	h.Write(text.Bytes())
	body.Reader = &text
	return key(h.Sum(nil)), sent, body, nil
}

// bodyPart is how much of a body is read at once, and how much room it takes.
const bodyPart = 32 << 10

// take makes room for bytes of a body, if there is some.
func (r *Recorder) take(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes+n > r.limits.Bytes {
		return false
	}
	r.bytes += n
	return true
}

func (r *Recorder) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes -= n
}

// part adds a text to a hash so that no two lists of texts are the same.
func part(h hash.Hash, s string) { fmt.Fprintf(h, "%d:%s", len(s), s) }

// joined is a body of which a part was read, or all of it. It takes room until it is closed.
type joined struct {
	io.Reader
	io.Closer
	recorder *Recorder
	room     atomic.Int64
	large    bool // it is not part of the key, and not all of it was read
	unsent   bool // its question was answered by an answer that was kept
}

// Close implements io.Closer.
func (j *joined) Close() error {
	j.give()
	return j.Closer.Close()
}

// give gives the room back.
func (j *joined) give() { j.recorder.give(j.room.Swap(0)) }

// ask counts a question of a branch and returns the answer that is for it. first says that
// the branch has to get it. There is none if there is no room.
func (r *Recorder) ask(branch string, k key) (a *answer, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.asked[branch]
	if asked == nil {
		asked = map[key]int{}
		r.asked[branch] = asked
	}
	n, known := asked[k]
	if !known && len(asked) >= r.limits.Answers {
		return nil, false
	}
	answers := r.answers[k]
	if n < len(answers) {
		asked[k]++
		return answers[n], false
	}
	if n > len(answers) || r.count >= r.limits.Answers || r.bytes >= r.limits.Bytes {
		return nil, false
	}
	asked[k]++
	a = &answer{done: make(chan struct{})}
	r.answers[k] = append(answers, a)
	r.count++
	return a, true
}

// record sends a request and keeps its answer.
func (t *transport) record(k key, a *answer, req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err != nil {
		t.recorder.finish(k, a, false)
		return nil, err
	}
	kind := res.Header.Get("Content-Type")
	switch {
	case res.StatusCode >= 500, res.StatusCode == http.StatusTooManyRequests, res.StatusCode == http.StatusRequestTimeout, res.StatusCode == http.StatusTooEarly,
		res.StatusCode < 200, res.ContentLength > t.recorder.limits.Body, strings.HasPrefix(kind, "text/event-stream"):
		t.recorder.finish(k, a, false)
		return res, nil
	}
	a.status, a.header = res.StatusCode, res.Header.Clone()
	res.Body = &tee{ReadCloser: res.Body, recorder: t.recorder, key: k, answer: a, res: res}
	return res, nil
}

// finish says whether an answer is kept. One that is not leaves its place: whoever has the
// same question next asks for itself.
func (r *Recorder) finish(k key, a *answer, keep bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-a.done:
		return
	default:
	}
	if keep {
		a.kept = true
		r.bytes += int64(len(a.body)) - a.room
	} else {
		a.body = nil
		r.bytes -= a.room
		i := slices.Index(r.answers[k], a)
		r.answers[k] = slices.Delete(r.answers[k], i, i+1)
		r.count--
		// Those who have had this answer's place count on from where they are.
		for _, asked := range r.asked {
			if asked[k] > i {
				asked[k]--
			}
		}
		if len(r.answers[k]) == 0 {
			delete(r.answers, k)
		}
	}
	close(a.done)
}

// response is the answer once more.
func (a *answer) response(req *http.Request) *http.Response {
	return &http.Response{
		StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.header.Clone(), Trailer: a.trailer.Clone(),
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: req,
	}
}

// tee is a body that is kept while it is read.
type tee struct {
	io.ReadCloser
	recorder *Recorder
	key      key
	answer   *answer
	res      *http.Response
	over     bool
}

// Read implements io.Reader.
func (t *tee) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if t.over {
		return n, err
	}
	if !t.recorder.take(int64(n)) {
		t.end(false)
		return n, err
	}
	t.answer.room += int64(n)
	t.answer.body = append(t.answer.body, b[:n]...)
	switch {
	case int64(len(t.answer.body)) > t.recorder.limits.Body, err != nil && !errors.Is(err, io.EOF):
		t.end(false)
	case err != nil:
		t.answer.trailer = maps.Clone(t.res.Trailer)
		t.end(true)
	}
	return n, err
}

func (t *tee) end(keep bool) {
	t.over = true
	t.recorder.finish(t.key, t.answer, keep)
}

// Close implements io.Closer.
func (t *tee) Close() error {
	if !t.over {
		t.end(false) // it may have been the end: nobody knows
	}
	return t.ReadCloser.Close()
}
