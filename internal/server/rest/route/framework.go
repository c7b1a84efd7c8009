package route

import (
	"errors"
	"net/http"
	"strings"

	"ramet.dev/ramet/internal/server/rest/answer"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// maxReported is how many faults of a request a problem lists.
const maxReported = 4

// The framework has only these variables for its errors and their texts, and no setting of an
// API. Lists are never null in any type.
func init() {
	huma.DefaultArrayNullable = false
	validation.MsgExpectedMinimumNumber, validation.MsgExpectedMaximumNumber = "it must be at least %v", "it must be at most %v"
	validation.MsgExpectedMinLength, validation.MsgExpectedMaxLength = "its length must be at least %d", "its length must be at most %d"
	validation.MsgExpectedMinItems, validation.MsgExpectedMaxItems = "there must be at least %d", "there must be at most %d"
	validation.MsgExpectedOneOf = "it must be one of: %s"
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return frameworkProblem(status, msg, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		p := frameworkProblem(status, msg, errs)
		p.RequestID = answer.RequestID(ctx.Context())
		return p
	}
}

// frameworkProblem makes a problem of the faults that the framework found in a request. Values
// are left out: they may be secrets.
func frameworkProblem(status int, msg string, errs []error) *httpwire.Problem {
	var details []string
	field := ""
	for _, err := range errs {
		var body *answer.BodyError
		if errors.As(err, &body) && status == http.StatusInternalServerError {
			status = http.StatusBadRequest
		}
		var d huma.ErrorDetailer
		text := err.Error()
		if errors.As(err, &d) {
			at := d.ErrorDetail().Location
			if field == "" {
				field = fieldOf(at)
			}
			text = d.ErrorDetail().Message
			if at != "" {
				text = at + ": " + text
			}
		}
		if len(details) < maxReported {
			details = append(details, text)
		}
	}
	if len(details) > 0 {
		msg = strings.Join(details, "; ")
	}
	if status == http.StatusUnsupportedMediaType {
		msg += ": the request needs the header Content-Type: application/json"
	}
	var p *httpwire.Problem
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		p = httpwire.NewProblem(api.Errorf(api.CodeInvalid, "%s", msg))
	case http.StatusInternalServerError:
		p = httpwire.NewProblem(api.Errorf(api.CodeInternal, "%s", msg))
	default:
		p = httpwire.NewStatusProblem(status, "%s", msg)
	}
	p.Field = field
	return p
}

// fieldOf turns the framework's "body.limits.cpus" into "limits.cpus".
func fieldOf(location string) string {
	for _, where := range []string{"body.", "query.", "path.", "header."} {
		if name, ok := strings.CutPrefix(location, where); ok {
			return name
		}
	}
	return ""
}
