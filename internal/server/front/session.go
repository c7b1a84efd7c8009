package front

import (
	"context"
	"net/http"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// ErrRevoked is the cause with which the context of a request ends when its token does.
var ErrRevoked = api.Errorf(api.CodeUnknownUser, "the token is no longer valid")

type sessionKey struct{}

// During returns r with the caller of a session in its context, which ends with s.
func During(r *http.Request, s *service.Session) (*http.Request, context.CancelFunc) {
	ctx := context.WithValue(access.With(r.Context(), s.Caller), sessionKey{}, s)
	ctx, cancel := context.WithCancelCause(ctx)
	ends := []func(){func() { cancel(nil) }}
	if !s.Until.IsZero() {
		timer := time.AfterFunc(time.Until(s.Until), func() { cancel(ErrRevoked) })
		ends = append(ends, func() { timer.Stop() })
	}
	if s.Gone != nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			select {
			case <-s.Gone:
				cancel(ErrRevoked)
			case <-ctx.Done():
			}
		}()
		ends = append(ends, func() { <-done })
	}
	return r.WithContext(ctx), func() {
		for _, end := range ends {
			end()
		}
	}
}

// SessionOf returns the session of a request.
func SessionOf(ctx context.Context) *service.Session {
	s, _ := ctx.Value(sessionKey{}).(*service.Session)
	return s
}
