package held

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/httprule"
)

// Transport returns a transport whose requests are held unless they only read. A guest gets
// the answer of the server once its request was released. If wait is not 0, it gets 425 Too
// Early after that time, and the request stays held. Requests that only read, and no
// others, go to next.
//
// What cannot be held is refused: connections that become something else than HTTP.
func (q *Queue) Transport(o Origin, wait time.Duration, told Told, next http.RoundTripper) http.RoundTripper {
	return &transport{q, o, wait, told, next}
}

// Told is called with what becomes of the requests of a transport. Both may be nil.
type Told struct {
	// Held is called once a request is written down, and before it is answered.
	Held func(r *http.Request, id string)
	// Refused is called with a request that is not held, and not let through.
	Refused func(r *http.Request, why string)
}

type transport struct {
	queue  *Queue
	origin Origin
	wait   time.Duration
	told   Told
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	methods := httprule.EffectiveMethods(r.Method, r.URL.RawQuery, r.Header)
	writes := slices.ContainsFunc(methods, func(m string) bool { return !httprule.Safe(m) })
	switch {
	case slices.Contains(methods, http.MethodTrace):
		return t.refuse(r, http.StatusForbidden, "writes are held here, and TRACE is refused"), nil
	case r.Header.Get("Upgrade") != "":
		return t.refuse(r, http.StatusForbidden, "writes are held here, and a connection that is upgraded cannot be"), nil
	case !writes:
		return t.next.RoundTrip(r)
	}
	guest := make(chan answer, 1)
	it, err := t.queue.add(t.origin, r, guest)
	if r.Body != nil {
		r.Body.Close()
	}
	if err != nil {
		return t.failed(r, err)
	}
	if t.told.Held != nil {
		t.told.Held(r, it.id)
	}
	var late <-chan time.Time
	if t.wait > 0 {
		timer := time.NewTimer(t.wait)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case a := <-guest:
		return a.res, a.err
	case <-late:
		if a, came := t.queue.leave(it, guest); came {
			return a.res, a.err
		}
		return problem(http.StatusTooEarly, "Request is held", "the request waits for a decision, and is sent if that is for it: do not send it again", it.req.ID), nil
	case <-r.Context().Done():
		if a, came := t.queue.leave(it, guest); came && a.res != nil {
			a.res.Body.Close()
		}
		return nil, context.Cause(r.Context())
	case <-t.queue.ctx.Done():
		return nil, errClosed
	}
}

// failed answers a request that could not be held.
func (t *transport) failed(r *http.Request, err error) (*http.Response, error) {
	switch {
	case r.Context().Err() != nil:
		return nil, context.Cause(r.Context())
	case errors.Is(err, errGuest):
		return nil, err
	case api.CodeOf(err) == api.CodeLimit:
		return t.refuse(r, http.StatusTooManyRequests, err.Error()), nil
	}
	// The reason is the host's.
	return t.refuse(r, http.StatusServiceUnavailable, "the request could not be written down, and was not let through"), nil
}

func (t *transport) refuse(r *http.Request, status int, why string) *http.Response {
	if t.told.Refused != nil {
		t.told.Refused(r, why)
	}
	return problem(status, "Request cannot be held", why, "")
}

// HeldHeader is a header of answers of the queue itself: the id of the request.
const HeldHeader = "Ramet-Held-Request"

// problem is an answer of the queue.
func problem(status int, title, detail, id string) *http.Response {
	body, err := json.Marshal(map[string]any{"type": "about:blank", "title": title, "status": status, "detail": detail, "origin": "ramet-gateway"})
	if err != nil {
		body = nil // texts and a number always can be written
	}
	h := http.Header{"Content-Type": {"application/problem+json"}, "Content-Length": {strconv.Itoa(len(body))}}
	if id != "" {
		h.Set(HeldHeader, id)
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: io.NopCloser(strings.NewReader(string(body))), ContentLength: int64(len(body)),
	}
}
