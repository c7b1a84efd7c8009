package control

import (
	"context"
	"net/http"

	"ramet.dev/ramet/internal/server/rest/route"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// auditLog serves the audit log.
type auditLog struct{ svc service.Audit }

type auditInput struct {
	Since int64 `query:"since" minimum:"0" doc:"number of the last entry that the client has"`
	Limit int   `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"entries at most"`
}

type verifyInput struct {
	Head string `query:"head" maxLength:"100" doc:"head that an earlier verification reported: the line must still exist"`
}

func (h *auditLog) routeAudit(r *route.Router) {
	const tag = "audit"
	route.Register(r, route.Operation(http.MethodGet, "/v1/audit", "list-audit", tag, "List the entries of the audit log, the oldest first"),
		func(ctx context.Context, in *auditInput) (*route.Out[httpwire.List[api.AuditEntry]], error) {
			if access.From(ctx).Bound() {
				return nil, api.Errorf(api.CodeForbidden, "the audit is of all of a tenant, and this token is bound to a part of it")
			}
			l, err := h.svc.AuditEntries(ctx, in.Since, in.Limit)
			return route.AnswerList(l, err)
		})
	route.Register(r, route.Operation(http.MethodGet, "/v1/audit/verify", "verify-audit", tag, "Verify the audit log"),
		func(ctx context.Context, in *verifyInput) (*route.Out[*api.AuditReport], error) {
			report, err := h.svc.VerifyAudit(ctx, in.Head)
			return route.Answer(report, err)
		})
}
