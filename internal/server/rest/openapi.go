package rest

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/internal/service"
)

// document adds a route that the framework does not serve to the document.
func (a *API) document(path, method, id, summary, tag string, responses map[string]*huma.Response, params ...*huma.Param) {
	a.huma.OpenAPI().AddOperation(&huma.Operation{
		Method: method, Path: path, OperationID: id, Summary: summary, Tags: []string{tag}, Parameters: params, Responses: responses, Security: security(method, path),
	})
}

// schemaOf returns a reference to the schema of v's type.
func schemaOf(a *API, v any) *huma.Schema {
	return a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, "")
}

// orNull documents that a member that is another type may be null, for which the
// framework has no word.
func orNull(a *API, typeName, member string) {
	of := a.huma.OpenAPI().Components.Schemas.Map()[typeName]
	was := of.Properties[member]
	of.Properties[member] = &huma.Schema{Description: was.Description, AnyOf: []*huma.Schema{{Ref: was.Ref}, {Type: "null"}}}
}

// jsonResponse documents success with v's type as body.
func jsonResponse(a *API, v any) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK), Content: jsonContent(a, v)}}
}

func jsonContent(a *API, v any) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/json": {Schema: schemaOf(a, v)}}
}

// bytesOf documents a body of any of these media types that is no text.
func bytesOf(mediaTypes ...string) map[string]*huma.MediaType {
	content := map[string]*huma.MediaType{}
	for _, t := range mediaTypes {
		content[t] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	}
	return content
}

// events are the names of server-sent events, each with a value of the type of its data.
type events map[string]any

// eventContent documents a stream of events. OpenAPI has no word for the data of an
// event, so an extension names the schemas.
func eventContent(a *API, text string, of events) *huma.MediaType {
	schemas := map[string]any{}
	for name, v := range of {
		schemas[name] = schemaOf(a, v)
	}
	return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: text, Extensions: map[string]any{"x-events": schemas}}}
}

// socketResponse documents that a connection becomes a WebSocket, and the text messages
// on it, for which OpenAPI has no word either.
func socketResponse(a *API, client, server any) map[string]*huma.Response {
	return map[string]*huma.Response{"101": {
		Description: "The connection is a WebSocket",
		Extensions:  map[string]any{"x-messages": map[string]any{"client": schemaOf(a, client), "server": schemaOf(a, server)}},
	}}
}

// documentedRoute returns a pattern of the mux, "METHOD /path", as the document writes it.
func documentedRoute(pattern string) string {
	return strings.Replace(pattern, "{ref...}", "{ref}", 1)
}

// operationID returns what the document calls a route, or "".
func (a *API) operationID(route string) string {
	if op := a.operations[route]; op != nil {
		return op.OperationID
	}
	return ""
}

// routeOpenAPI serves the document. It comes last: the document is rendered
// once, from the routes there are.
func (a *API) routeOpenAPI() {
	a.document("/openapi.json", http.MethodGet, "get-openapi", "This document", "daemon", map[string]*huma.Response{
		"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{
			"application/openapi+json": {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}},
		}},
	})
	a.operations = map[string]*huma.Operation{}
	for path, item := range a.huma.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "PUT": item.Put, "POST": item.Post, "DELETE": item.Delete, "PATCH": item.Patch, "HEAD": item.Head} {
			if op != nil {
				a.operations[method+" "+path] = op
			}
		}
	}
	a.completeDocument()
	doc, err := json.Marshal(a.huma.OpenAPI())
	if err != nil {
		panic("render OpenAPI document: " + err.Error()) // the types of this package cannot be described: a defect
	}
	a.rendered = doc
	a.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(doc)
	})
}

// Document returns the OpenAPI document of the interface, as JSON, for a daemon of this
// version.
func Document(version string) []byte {
	return New(Config{Service: unserved{}, Version: version}).rendered
}

// unserved stands for a service where none is called.
type unserved struct{ service.Service }
