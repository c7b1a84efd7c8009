package rest

import (
	"net/http"
	"regexp"
	"strings"

	"ramet.dev/ramet/internal/server/rest/answer"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/audit"
)

// noted are the routes with a reading method that are audited all the same: they run commands,
// or answer with differences that decisions are based on. leftOut are frequent changes of
// little importance, and what changes nothing.
var (
	noted = map[string]bool{
		"GET /v1/sandboxes/{id}/exec": true, "GET /v1/sandboxes/{id}/processes/{pid}/attach": true, "GET /v1/sandboxes/{id}/ports/{port}": true,
		"GET /v1/sandboxes/{id}/diff": true, "GET /v1/sandboxes/{id}/export": true, "GET /v1/snapshots/{id}/export": true,
		"GET /v1/snapshots/{id}/pack": true,
	}
	leftOut = map[string]bool{
		"POST /v1/sandboxes/{id}/processes/{pid}/resize": true, "POST /v1/sandboxes/{id}/processes/{pid}/stdin": true,
		"POST /v1/sandboxes/{id}/network/test": true,
	}
)

// isAudited reports whether requests of a route have an entry in the audit log.
func isAudited(route string) bool {
	method, _, _ := strings.Cut(route, " ")
	return noted[route] || method != http.MethodGet && method != http.MethodHead && !leftOut[route]
}

// written serves a request and writes its entry in the audit log. While entries cannot be written it
// refuses changes, except those that free space.
func (a *API) written(w *responseWriter, r *http.Request, route string, serve func(*responseWriter, *http.Request)) {
	if !isAudited(route) {
		serve(w, r)
		return
	}
	if err := a.svc.AuditReady(); err != nil && r.Method != http.MethodDelete {
		a.WriteProblem(w, r, err)
		return
	}
	ctx, note := audit.Begin(r.Context(), a.router.OperationID(route), answer.RequestID(r.Context()))
	defer func() { // also if it panics
		if w.status >= 400 {
			note.Failed(api.CodeInvalid) // the framework has answered, which knows no codes
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
