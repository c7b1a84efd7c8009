package rest

import (
	"context"
	"net/http"
	"regexp"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/audit"
	"ramet.dev/ramet/internal/service/access"
)

// noted are routes that change nothing by their method and are written down: they
// run commands, or say how things differ, on which people decide. left out are
// changes that come by the hundred and say nothing.
var (
	noted = map[string]bool{
		"GET /v1/sandboxes/{id}/exec": true, "GET /v1/sandboxes/{id}/processes/{pid}/attach": true, "GET /v1/sandboxes/{id}/ports/{port}": true,
		"GET /v1/sandboxes/{id}/diff": true, "GET /v1/sandboxes/{id}/export": true, "GET /v1/snapshots/{id}/export": true,
	}
	leftOut = map[string]bool{"POST /v1/sandboxes/{id}/processes/{pid}/resize": true, "POST /v1/sandboxes/{id}/processes/{pid}/stdin": true}
)

// isAudited reports whether a route is written down.
func isAudited(route string) bool {
	method, _, _ := strings.Cut(route, " ")
	return noted[route] || method != http.MethodGet && method != http.MethodHead && !leftOut[route]
}

// written serves a request and writes down what came of it. It refuses changes that
// could not be written down, but for those that make room.
func (a *API) written(w *responseWriter, r *http.Request, route string, serve func(*responseWriter, *http.Request)) {
	route = documentedRoute(route)
	if !isAudited(route) {
		serve(w, r)
		return
	}
	if err := a.svc.AuditReady(); err != nil && r.Method != http.MethodDelete {
		a.writeProblem(w, r, err)
		return
	}
	ctx, note := audit.Begin(r.Context(), a.operationID(route), requestID(r.Context()))
	defer func() { // also if it panics
		if w.status >= 400 {
			note.Failed(api.CodeInvalid) // said by the framework, which knows no codes
		}
		if note.Object(pathRef(route, r.URL.Path)); !note.Dropped() {
			a.svc.AppendAudit(note.Entry())
		}
	}()
	finished := false
	defer func() {
		if !finished {
			note.Failed(api.CodeInternal)
		}
	}()
	serve(w, r.WithContext(ctx))
	finished = true
}

var plainRef = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}$`)

// pathRef returns the reference in a path, if it has the form of one.
func pathRef(route, path string) string {
	_, pattern, _ := strings.Cut(route, " ")
	before, _, found := strings.Cut(pattern, "{")
	rest, ok := strings.CutPrefix(path, before)
	if !found || !ok {
		return ""
	}
	if !strings.HasSuffix(pattern, "{ref}") {
		rest, _, _ = strings.Cut(rest, "/")
	}
	if !plainRef.MatchString(rest) {
		return ""
	}
	return rest
}

type auditInput struct {
	Since int64 `query:"since" minimum:"0" doc:"number of the last entry that is known"`
	Limit int   `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"entries at most"`
}

type verifyInput struct {
	Head string `query:"head" maxLength:"100" doc:"what an earlier verification said was the last line: it must still be there"`
}

func (a *API) routeAudit() {
	const tag = "audit"
	register(a, operation(http.MethodGet, "/v1/audit", "list-audit", tag, "Who did what, the oldest first"),
		func(ctx context.Context, in *auditInput) (*out[httpwire.List[api.AuditEntry]], error) {
			if access.From(ctx).Bound() {
				return nil, api.Errorf(api.CodeForbidden, "the audit is of all of a tenant, and this token is bound to a part of it")
			}
			l, err := a.svc.AuditEntries(ctx, in.Since, in.Limit)
			return &out[httpwire.List[api.AuditEntry]]{httpwire.List[api.AuditEntry]{Items: list(l)}}, err
		})
	register(a, operation(http.MethodGet, "/v1/audit/verify", "verify-audit", tag, "Is the audit as it was written?"),
		func(ctx context.Context, in *verifyInput) (*out[*api.AuditReport], error) {
			report, err := a.svc.VerifyAudit(ctx, in.Head)
			return &out[*api.AuditReport]{report}, err
		})
}
