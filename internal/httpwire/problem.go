package httpwire

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"ramet.dev/ramet/api"
)

// ProblemType is the media type of a problem document (RFC 9457).
const ProblemType = "application/problem+json"

// problemBase makes the code of a problem a URI, as RFC 9457 asks for.
const problemBase = "https://ramet.dev/problems/"

// Problem is an error as REST and the CLI's --json show it: an RFC 9457
// document with the extra members code, field and request_id.
type Problem struct {
	Type      string        `json:"type" format:"uri" doc:"URI of the kind of problem"`
	Title     string        `json:"title" doc:"the kind of problem in words"`
	Status    int           `json:"status" doc:"HTTP status"`
	Detail    string        `json:"detail" doc:"what happened in this request"`
	Code      api.Code      `json:"code" doc:"the kind of problem for programs; never renamed"`
	Field     string        `json:"field,omitempty" doc:"field or option at fault"`
	Exceeded  *api.Exceeded `json:"exceeded,omitempty" doc:"the quota that was exceeded, with the limit and the consumption"`
	RequestID string        `json:"request_id,omitempty" doc:"identifies the request in the daemon's log"`
}

// NewProblem returns the document that shows err, which must not be nil. A
// Problem in err's chain is kept.
func NewProblem(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	e := api.AsError(err)
	return &Problem{
		Type:     problemBase + string(e.Code),
		Title:    e.Code.Title(),
		Status:   e.Code.HTTPStatus(),
		Detail:   e.Detail,
		Code:     e.Code,
		Field:    e.Field,
		Exceeded: e.Exceeded,
	}
}

// NewStatusProblem returns a document for a request that HTTP itself refuses:
// the status says more than any api.Code.
func NewStatusProblem(status int, format string, args ...any) *Problem {
	p := NewProblem(api.Errorf(api.CodeInvalid, format, args...))
	p.Status, p.Title = status, http.StatusText(status)
	return p
}

// Error implements error.
func (p *Problem) Error() string {
	text := p.sandboxError().Error()
	if p.Code == api.CodeInternal && p.RequestID != "" {
		return fmt.Sprintf("%s (request %s)", text, p.RequestID)
	}
	return text
}

// Unwrap makes errors.As find the *api.Error that p shows.
func (p *Problem) Unwrap() error { return p.sandboxError() }

// GetStatus returns the HTTP status. The REST framework asks for it.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders returns headers that go with p. The REST framework asks for them.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.Exceeded != nil && p.Exceeded.RetrySeconds > 0 {
		h.Set("Retry-After", strconv.FormatInt(p.Exceeded.RetrySeconds, 10))
	}
	return h
}

// ContentType replaces the media type of a response that carries p.
func (p *Problem) ContentType(string) string { return ProblemType }

func (p *Problem) sandboxError() *api.Error {
	return &api.Error{Code: p.Code, Detail: p.Detail, Field: p.Field, Exceeded: p.Exceeded}
}
