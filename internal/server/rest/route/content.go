package route

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Document adds a route that the framework does not serve to the document.
func (r *Router) Document(path, method, id, summary, tag string, responses map[string]*huma.Response, params ...*huma.Param) {
	r.huma.OpenAPI().AddOperation(&huma.Operation{
		Method: method, Path: path, OperationID: id, Summary: summary, Tags: []string{tag}, Parameters: params, Responses: responses, Security: security(method, path),
	})
}

// SchemaOf returns a reference to the schema of v's type.
func SchemaOf(r *Router, v any) *huma.Schema {
	return r.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, "")
}

// OrNull documents that a member of an object type may be null, which the framework cannot
// express.
func OrNull(r *Router, typeName, member string) {
	of := r.huma.OpenAPI().Components.Schemas.Map()[typeName]
	was := of.Properties[member]
	of.Properties[member] = &huma.Schema{Description: was.Description, AnyOf: []*huma.Schema{{Ref: was.Ref}, {Type: "null"}}}
}

// JSONResponse documents success with v's type as body.
func JSONResponse(r *Router, v any) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK), Content: JSONContent(r, v)}}
}

func JSONContent(r *Router, v any) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/json": {Schema: SchemaOf(r, v)}}
}

// BytesOf documents a body of bytes with any of these media types.
func BytesOf(mediaTypes ...string) map[string]*huma.MediaType {
	content := map[string]*huma.MediaType{}
	for _, t := range mediaTypes {
		content[t] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	}
	return content
}

// EventData are the names of server-sent events, each with a value of the type of its data.
type EventData map[string]any

// EventContent documents a stream of events. OpenAPI cannot describe the data of an event, so
// an extension names the schemas.
func EventContent(r *Router, text string, of EventData) *huma.MediaType {
	schemas := map[string]any{}
	for name, v := range of {
		schemas[name] = SchemaOf(r, v)
	}
	return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: text, Extensions: map[string]any{"x-events": schemas}}}
}

// SocketResponse documents that a connection becomes a WebSocket, and the text messages on it,
// which OpenAPI cannot describe either.
func SocketResponse(r *Router, client, server any) map[string]*huma.Response {
	return map[string]*huma.Response{"101": {
		Description: "The connection is a WebSocket",
		Extensions:  map[string]any{"x-messages": map[string]any{"client": SchemaOf(r, client), "server": SchemaOf(r, server)}},
	}}
}

// documentedRoute returns a pattern of the mux, "METHOD /path", as the document writes it.
func documentedRoute(pattern string) string {
	return strings.Replace(pattern, "{ref...}", "{ref}", 1)
}

// OperationID returns the id of the operation of a route, or "".
func (r *Router) OperationID(route string) string {
	if op := r.Operations[route]; op != nil {
		return op.OperationID
	}
	return ""
}
