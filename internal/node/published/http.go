package published

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// NewGuard returns the handler of a port with a token: it passes on requests that carry the
// token to a connection of dial, and refuses all others, of which it tells refused. isToken compares in
// constant time.
type NewGuard func(isToken func(text string) bool, refused func(), hostPort uint16, dial func(ctx context.Context) (net.Conn, error), log *slog.Logger) http.Handler

// Bounds of requests. Their bodies take as long as the server in the sandbox allows.
const (
	headerTimeout = 15 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
)

// Accept implements net.Listener.
func (e *endpoint) Accept() (net.Conn, error) {
	c, err := e.accept()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Addr implements net.Listener.
func (e *endpoint) Addr() net.Addr { return e.listener.Addr() }

// Close implements net.Listener. The endpoint is closed by end.
func (e *endpoint) Close() error { return nil }

// serveHTTP serves the connections of the endpoint with a guard until the endpoint has ended,
// and waits for their goroutines.
func (e *endpoint) serveHTTP(guard http.Handler) {
	var handlers sync.WaitGroup // connections and requests
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers.Add(1) // also after the connection was hijacked
			defer handlers.Done()
			guard.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return e.ctx },
		ErrorLog:          slog.NewLogLogger(e.publisher.cfg.Log.Handler(), slog.LevelDebug),
		ConnState: func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				handlers.Add(1)
			case http.StateHijacked, http.StateClosed:
				handlers.Done()
			}
		},
	}
	if err := srv.Serve(e); !errors.Is(err, net.ErrClosed) {
		e.publisher.cfg.Log.Error("serve a published port", "address", e.record.Listen.String(), "error", err)
	}
	handlers.Wait()
}

// newGuard returns the handler of the endpoint, which has a token.
func (e *endpoint) newGuard() http.Handler {
	return e.publisher.cfg.Guard(e.record.isToken, e.refuse, e.record.Listen.Port(), func(ctx context.Context) (net.Conn, error) {
		return e.dial(ctx)
	}, e.publisher.cfg.Log)
}
