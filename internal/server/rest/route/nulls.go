package route

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sort"

	"github.com/danielgtaylor/huma/v2"
)

// refuseNulls refuses a JSON body with a null where the schema has none. The framework takes a
// null for a member that is left out, if the member is optional: a request would be something
// else than what it says.
func (r *Router) refuseNulls(ctx huma.Context, next func(huma.Context)) {
	body := ctx.Operation().RequestBody
	if body == nil || body.Content["application/json"] == nil || body.Content["application/json"].Schema == nil || len(body.Content) > 1 {
		next(ctx)
		return
	}
	text, err := io.ReadAll(io.LimitReader(ctx.BodyReader(), ctx.Operation().MaxBodyBytes+1))
	replayed := replayedBody{ctx, io.MultiReader(bytes.NewReader(text), failing{err}, ctx.BodyReader())}
	var value any
	if err != nil || json.Unmarshal(text, &value) != nil || value == nil {
		next(replayed) // the framework says what is wrong
		return
	}
	if at, found := r.null(body.Content["application/json"].Schema, value, "body"); found {
		_ = huma.WriteErr(r.huma, ctx, http.StatusUnprocessableEntity, "", &huma.ErrorDetail{Location: at, Message: "it must not be null: leave it out"}) // the client is gone
		return
	}
	next(replayed)
}

// null returns where the first null is that the schema does not allow.
func (r *Router) null(s *huma.Schema, v any, at string) (where string, found bool) {
	if s != nil && s.Ref != "" {
		s = r.huma.OpenAPI().Components.Schemas.SchemaFromRef(s.Ref)
	}
	if s == nil {
		return "", false
	}
	switch v := v.(type) {
	case nil:
		// A schema without a type is that of any value, or of one of several.
		return at, s.Type != "" && !s.Nullable
	case []any:
		for i, x := range v {
			if where, found := r.null(s.Items, x, fmt.Sprintf("%s[%d]", at, i)); found {
				return where, true
			}
		}
	case map[string]any:
		rest, _ := s.AdditionalProperties.(*huma.Schema)
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			of := s.Properties[name]
			if of == nil {
				of = rest
			}
			if where, found := r.null(of, v[name], at+"."+name); found {
				return where, true
			}
		}
	}
	return "", false
}

// humaContext has another name than its method Context.
type humaContext huma.Context

// replayedBody is a request whose body was read.
type replayedBody struct {
	humaContext
	body io.Reader
}

// Unwrap returns the context below, which the framework asks for.
func (c replayedBody) Unwrap() huma.Context { return c.humaContext }

// BodyReader implements huma.Context.
func (c replayedBody) BodyReader() io.Reader { return c.body }

// failing is a reader that fails with an error, or ends if that is nil.
type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}
