package idempotent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"sync"

	"ramet.dev/ramet/internal/server/rest/answer"
	"ramet.dev/ramet/internal/server/rest/route"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
)

// A change with a key is done once. A record that it has begun is stored before, and its
// answer after it: a change that a daemon had begun before it died is never begun again.

// maxKeptAnswer bounds an answer that is kept, in bytes.
const maxKeptAnswer = 256 << 10

// secretAnswers are the routes whose answers have a secret: they are not stored.
var secretAnswers = map[string]bool{"POST /v1/tokens": true, "POST /v1/tokens/{id}/rotate": true, "POST /v1/sandboxes/{id}/port-sessions": true}

// flights are the requests with an idempotency key that are under way.
type flights struct {
	mu   sync.Mutex
	done map[string]chan struct{}
}

// take reserves key for the caller until land. If it is reserved, take returns a channel that
// is closed when it is free.
func (f *flights) take(key string) (mine bool, landed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if done, ok := f.done[key]; ok {
		return false, done
	}
	if f.done == nil {
		f.done = map[string]chan struct{}{}
	}
	f.done[key] = make(chan struct{})
	return true, nil
}

func (f *flights) land(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.done[key])
	delete(f.done, key)
}

// uploads are routes with bodies of any length, which are not kept to be compared: a key has no
// effect. A repeated request fails, because the name is taken, or makes another thing.
var uploads = map[string]bool{"POST /v1/snapshots/unpack": true}

// Guard does a request with an idempotency key once.
type Guard struct {
	*answer.Reporter
	svc     service.Idempotency
	flights flights
}

// New returns a guard that stores answers in svc.
func New(p *answer.Reporter, svc service.Idempotency) *Guard { return &Guard{Reporter: p, svc: svc} }

// Once serves a request, or repeats the stored answer if a request with its key was served
// before. serve does the request.
func (g *Guard) Once(w http.ResponseWriter, r *http.Request, pattern string, serve func(http.ResponseWriter, *http.Request)) {
	given := r.Header.Get(httpwire.IdempotencyHeader)
	switch r.Method {
	case http.MethodPost, http.MethodPatch, http.MethodDelete:
	default:
		given = "" // it changes nothing, or repeating it changes nothing more
	}
	if uploads[pattern] {
		given = ""
	}
	if given == "" {
		serve(w, r)
		return
	}
	if len(given) > route.MaxIdempotencyKey || strings.ContainsFunc(given, func(c rune) bool { return c <= ' ' || c > '~' }) {
		g.WriteProblem(w, r, api.Invalid(httpwire.IdempotencyHeader, "a key is 1 to %d printable characters of ASCII without spaces", route.MaxIdempotencyKey))
		return
	}
	digest, err := takeBody(r)
	if err != nil {
		g.WriteProblem(w, r, err)
		return
	}
	caller := access.From(r.Context())
	key := keyFor(caller, given)
	for {
		mine, landed := g.flights.take(key)
		if mine {
			break
		}
		select {
		case <-landed:
		case <-r.Context().Done():
			g.WriteProblem(w, r, context.Cause(r.Context()))
			return
		}
	}
	defer g.flights.land(key)
	before, err := g.svc.Answer(r.Context(), key)
	if err == nil && before != nil {
		g.replay(w, r, before, digest)
		return
	}
	if err == nil {
		err = g.svc.KeepAnswer(r.Context(), key, service.Answer{Tenant: caller.Tenant, Request: digest})
	}
	if err != nil {
		g.WriteProblem(w, r, err)
		return
	}
	rec := &recorder{ResponseWriter: w, secret: secretAnswers[pattern]}
	finished := false
	defer func() { // also if it panics
		ctx := context.WithoutCancel(r.Context()) // it is done even if the client has gone
		if err := g.settle(ctx, key, service.Answer{Tenant: caller.Tenant, Request: digest}, rec, finished); err != nil {
			g.Log.Error("keep an answer", "request", answer.RequestID(ctx), "error", err)
		}
	}()
	serve(rec, r.WithContext(answer.WithLateFailure(r.Context(), func() { rec.failed = true })))
	finished = true
}

// settle stores the answer of a request that succeeded, and deletes the record of a request
// that failed, which may be tried again.
func (g *Guard) settle(ctx context.Context, key string, kept service.Answer, rec *recorder, finished bool) error {
	if !finished || rec.failed || rec.status < 200 || rec.status > 299 {
		return g.svc.ForgetAnswer(ctx, key)
	}
	kept.Status, kept.Type, kept.Left = rec.status, rec.Header().Get("Content-Type"), rec.secret || rec.cut
	if !kept.Left {
		kept.Body = rec.body.Bytes()
	}
	return g.svc.KeepAnswer(ctx, key, kept)
}

// replay answers with the stored answer.
func (g *Guard) replay(w http.ResponseWriter, r *http.Request, before *service.Answer, digest string) {
	switch {
	case before.Request != digest:
		p := httpwire.NewStatusProblem(http.StatusUnprocessableEntity, "this key was used for another request: take a new one")
		p.Field = httpwire.IdempotencyHeader
		g.WriteProblem(w, r, p)
	case before.Status == 0:
		g.WriteProblem(w, r, api.Errorf(api.CodeConflict, "the daemon ended while it did this, so nobody knows whether it was done: look, and take another key"))
	case before.Left:
		g.WriteProblem(w, r, api.Errorf(api.CodeConflict, "this was done before, and its answer is not kept: it is secret, or has more than %d bytes", maxKeptAnswer))
	default:
		audit.Of(r.Context()).Drop() // it has an entry from when it was done
		h := w.Header()
		if h.Set(httpwire.ReplayedHeader, "true"); before.Type != "" {
			h.Set("Content-Type", before.Type)
		}
		w.WriteHeader(before.Status)
		_, _ = w.Write(before.Body) // fails only if the client is gone
	}
}

// takeBody returns the digest of a request, and puts its body back.
func takeBody(r *http.Request) (string, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, route.MaxExecBody+1))
	if err != nil {
		return "", api.Errorf(api.CodeInvalid, "read the request: %w", err)
	}
	if len(body) > route.MaxExecBody {
		return "", httpwire.NewStatusProblem(http.StatusRequestEntityTooLarge, "the request has more than %d bytes", route.MaxExecBody)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	h := sha256.New()
	conditions := strings.Join(r.Header.Values("If-Match"), ",") + "\n" + strings.Join(r.Header.Values("If-None-Match"), ",")
	for _, part := range []string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Accept"), conditions, string(body)} {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// keyFor returns the digest under which the answer to a caller's key is stored. Callers have
// separate keys.
func keyFor(c access.Caller, given string) string {
	by := "owner"
	if !c.Owner {
		by = c.Tenant + "/" + c.Token
	}
	sum := sha256.Sum256([]byte(by + "\x00" + given))
	return hex.EncodeToString(sum[:])
}

// recorder records an answer while it is written.
type recorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
	cut    bool
	secret bool
	failed bool // the status was success, and the work failed later
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer. Parts that the client does not receive any more are recorded too.
func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	switch {
	case r.secret || r.cut:
	case r.body.Len()+len(p) > maxKeptAnswer:
		r.cut = true
		r.body = bytes.Buffer{}
	default:
		r.body.Write(p)
	}
	return r.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
