package envd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/audit"
)

// Service is what the agent needs of the machine.
type Service interface {
	service.Processes
	service.Files
}

// Sandbox is the sandbox of a request, whose caller is in the request's context.
type Sandbox struct {
	ID string
	// User is the user that the request names; empty for Default.
	User string
	// Default is the user of commands and files unless a request says otherwise; empty for the sandbox's own.
	Default string
	// Dir is where commands start, and relative paths begin, of requests that name no user; empty for the
	// home directory.
	Dir string
	// Env is added to the environment of commands.
	Env map[string]string

	ping string // seconds between messages that keep a stream alive, as the request says
}

// user returns the user of a request.
func (s *Sandbox) user() string {
	if s.User != "" {
		return s.User
	}
	return s.Default
}

// home returns where commands of the user start, and relative paths begin.
func (s *Sandbox) home() string {
	switch u := s.user(); {
	case s.User == "" && s.Dir != "":
		return s.Dir
	case u == "" || u == "root" || u == "0":
		return "/root"
	default:
		return "/home/" + u
	}
}

// absolute returns the path of a file: relative ones are below the home directory.
func (s *Sandbox) absolute(path string) string {
	switch {
	case strings.HasPrefix(path, "/"):
		return path
	case path == "" || path == "~" || path == ".":
		return s.home()
	}
	return s.home() + "/" + strings.TrimPrefix(path, "~/")
}

type sandboxKey struct{}

func of(ctx context.Context) *Sandbox { return ctx.Value(sandboxKey{}).(*Sandbox) }

// Agent answers for the agents of all sandboxes. It is safe for concurrent use.
type Agent struct {
	mux      *http.ServeMux
	routes   []string
	watchers *watchers
}

// New returns an Agent. Close ends it.
func New(svc Service) *Agent {
	a := &Agent{mux: http.NewServeMux(), watchers: newWatchers()}
	f := &filesystem{svc: svc, watchers: a.watchers}
	(&processes{svc: svc}).route(a)
	f.route(a)
	(&contents{f}).route(a)
	return a
}

// Routes returns what the agent answers, as METHOD /path.
func (a *Agent) Routes() []string { return a.routes }

// handle serves a route.
func (a *Agent) handle(method, path string, h http.Handler) {
	route := method + " " + path
	a.routes = append(a.routes, route)
	a.mux.Handle(route, h)
}

// Close ends watchers that clients have left.
func (a *Agent) Close() { a.watchers.close() }

// Serve answers a request for the agent of a sandbox.
func (a *Agent) Serve(w http.ResponseWriter, r *http.Request, s Sandbox) {
	if user, _, ok := r.BasicAuth(); ok && user != "" {
		s.User = user
	}
	s.ping = r.Header.Get("Keepalive-Ping-Interval")
	a.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sandboxKey{}, &s)))
}

// maxMessage bounds a message of a client: input for processes comes in such pieces.
const maxMessage = 16 << 20

// jsonCodec has messages in JSON as they are, in place of those of protocol buffers.
type jsonCodec struct{}

func (jsonCodec) Name() string                    { return "json" }
func (jsonCodec) Marshal(v any) ([]byte, error)   { return json.Marshal(v) }
func (jsonCodec) Unmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }

var options = []connect.HandlerOption{connect.WithCodec(jsonCodec{}), connect.WithReadMaxBytes(maxMessage)}

// oneMessage serves requests whose body is one message. Without it, the library would read what follows a message that
// is too long, for as long as the client sends.
func oneMessage(h http.Handler) http.Handler {
	const envelope = 1 << 10
	return http.MaxBytesHandler(h, maxMessage+envelope)
}

// unary serves a procedure with one answer.
func unary[In, Out any](a *Agent, procedure string, handle func(context.Context, *Sandbox, *In) (*Out, error)) {
	a.handle(http.MethodPost, procedure, oneMessage(connect.NewUnaryHandler(procedure, func(ctx context.Context, req *connect.Request[In]) (*connect.Response[Out], error) {
		out, err := handle(ctx, of(ctx), req.Msg)
		if err != nil {
			audit.Of(ctx).Failed(api.CodeOf(err))
			return nil, rpcError(err)
		}
		return connect.NewResponse(out), nil
	}, options...)))
}

// stream serves a procedure whose answer is a stream.
func stream[In, Out any](a *Agent, procedure string, handle func(context.Context, *Sandbox, *In, *sender[Out]) error) {
	a.handle(http.MethodPost, procedure, oneMessage(connect.NewServerStreamHandler(procedure, func(ctx context.Context, req *connect.Request[In], to *connect.ServerStream[Out]) error {
		s := &sender[Out]{to: to}
		err := handle(ctx, of(ctx), req.Msg, s)
		if err != nil {
			audit.Of(ctx).Failed(api.CodeOf(err))
		}
		if s.begun() && Gone(err) {
			BreakOff()
		}
		return rpcError(err)
	}, options...)))
}

// sender sends messages of several goroutines on a stream.
type sender[Out any] struct {
	mu   sync.Mutex
	to   *connect.ServerStream[Out]
	sent bool // a message; guarded by mu
}

func (s *sender[Out]) send(m *Out) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = true
	return s.to.Send(m)
}

// begun reports whether the stream has a message.
func (s *sender[Out]) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// BreakOff ends an answer that has begun without its end, by closing the connection. That is how clients know that a
// sandbox ended meanwhile: they ask for its health then, and say that it "was killed or reached its end of life".
func BreakOff() { panic(http.ErrAbortHandler) }

// Periods of keep-alive messages.
const (
	defaultPing = 90 * time.Second
	minPing     = time.Second
)

// keepAlive sends a message again and again until the function that it returns is called, which waits for
// the last one. period is what the client asks for, in seconds.
func (s *sender[Out]) keepAlive(ctx context.Context, period string, m *Out) (stop func()) {
	every := defaultPing
	if d, err := time.ParseDuration(period + "s"); err == nil && d >= minPing {
		every = d
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if s.send(m) != nil {
					return // the client is gone, which the call sees
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// codes are those of the protocol for ours.
var codes = map[api.Code]connect.Code{
	api.CodeInvalid:       connect.CodeInvalidArgument,
	api.CodeNoCommand:     connect.CodeInvalidArgument,
	api.CodeNotExecutable: connect.CodeInvalidArgument,
	api.CodeNotFound:      connect.CodeNotFound,
	api.CodeNameTaken:     connect.CodeAlreadyExists,
	api.CodeConflict:      connect.CodeAlreadyExists,
	api.CodeWrongState:    connect.CodeFailedPrecondition,
	api.CodeUnknownUser:   connect.CodeUnauthenticated,
	api.CodeForbidden:     connect.CodePermissionDenied,
	api.CodePermission:    connect.CodePermissionDenied,
	api.CodeUnavailable:   connect.CodeUnavailable,
	api.CodeTimeout:       connect.CodeDeadlineExceeded,
	api.CodeCanceled:      connect.CodeCanceled,
	api.CodeUnsupported:   connect.CodeUnimplemented,
	api.CodeLimit:         connect.CodeResourceExhausted,
	api.CodeNoMemory:      connect.CodeResourceExhausted,
	api.CodeNoSpace:       connect.CodeResourceExhausted,
}

// rpcError returns the error of the protocol for one of ours.
func rpcError(err error) error {
	var done *connect.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &done):
		return done
	}
	if Gone(err) {
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("%s", GoneMessage))
	}
	code, ok := codes[api.CodeOf(err)]
	if !ok {
		code = connect.CodeInternal
	}
	return connect.NewError(code, err)
}

// GoneMessage is what clients know as: there is no such sandbox, or it does not run.
const GoneMessage = "The sandbox was not found"

// Gone reports whether an error says that there is no sandbox, or that it does not run.
func Gone(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeNotFound:
		return strings.Contains(err.Error(), "no sandbox ")
	case api.CodeSandboxDied:
		return true
	}
	return false
}
