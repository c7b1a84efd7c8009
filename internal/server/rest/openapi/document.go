package openapi

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"ramet.dev/ramet/internal/server/rest/auth"
	"ramet.dev/ramet/internal/server/rest/route"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// statusCanceled is the status, not one of RFC 9110, of a request that ended before it was
// answered.
var statusCanceled = api.CodeCanceled.HTTPStatus()

// failureTexts are the meanings of the statuses of failure, and the names of their responses
// among the components of the document.
var failureTexts = map[int]struct{ name, text string }{
	http.StatusBadRequest:                   {"BadRequest", "The request is invalid: `field` names the member, and `detail` the allowed values"},
	http.StatusUnauthorized:                 {"Unauthorized", "There is no token, or it is not valid"},
	http.StatusForbidden:                    {"Forbidden", "The token, or the user in the sandbox, does not have the right"},
	http.StatusNotFound:                     {"NotFound", "The thing does not exist, or the caller does not see it"},
	http.StatusConflict:                     {"Conflict", "The state of the thing, another thing that uses it, or a taken name prevents the request"},
	http.StatusPreconditionFailed:           {"PreconditionFailed", "The file is not the version that the request asks for"},
	http.StatusRequestEntityTooLarge:        {"TooLarge", "The body is too large"},
	http.StatusUnsupportedMediaType:         {"UnsupportedMediaType", "The media type of the body is not supported here"},
	http.StatusRequestedRangeNotSatisfiable: {"RangeNotSatisfiable", "The file has no such range"},
	http.StatusUnprocessableEntity:          {"Unprocessable", "The request is valid, but is not possible on this machine, or with this data"},
	http.StatusUpgradeRequired:              {"UpgradeRequired", "The request must ask for a WebSocket"},
	http.StatusTooManyRequests:              {"LimitExceeded", "A limit or a quota is exceeded: `exceeded` names the quota"},
	statusCanceled:                          {"Canceled", "The request ended before it was answered: its client went away, or its token was removed"},
	http.StatusInternalServerError:          {"InternalError", "A defect of Ramet; the daemon's log has details under `request_id`"},
	http.StatusServiceUnavailable:           {"Unavailable", "The daemon is about to end, or another server cannot be reached: try again"},
	http.StatusGatewayTimeout:               {"Timeout", "A deadline passed"},
	http.StatusInsufficientStorage:          {"InsufficientStorage", "The host has no memory, or no room on its disk, left"},
}

// Complete adds to the document of r the parts that all operations have in common, or that
// follow from the types.
func Complete(r *route.Router) {
	doc := r.OpenAPI()
	doc.Info.License = &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"}
	doc.Info.Contact = &huma.Contact{Name: "Ramet", URL: "https://ramet.dev"}
	doc.Servers = []*huma.Server{
		{URL: "/", Description: "The daemon that served this document, at its socket or its address"},
		{URL: "https://{host}:{port}", Description: "A daemon that listens on TCP, by `ramet serve --listen`", Variables: map[string]*huma.ServerVariable{
			"host": {Default: "localhost", Description: "Name or address of the machine"},
			"port": {Default: "8443", Description: "Port that it listens on"},
		}},
	}
	doc.Tags = tags
	doc.Components.Responses = map[string]*huma.Response{}
	for status, p := range failureTexts {
		doc.Components.Responses[p.name] = &huma.Response{Description: p.text, Content: map[string]*huma.MediaType{
			httpwire.ProblemType: {Schema: route.SchemaOf(r, httpwire.Problem{}), Example: exampleProblem(status)},
		}}
	}
	for _, op := range r.Operations {
		op.Description = descriptions[op.OperationID]
		documentProblems(op)
		documentQuery(op)
		documentBrowser(op)
		if ex, ok := examples[op.OperationID]; ok {
			ex.addTo(op)
		}
	}
	nameClosedSets(r)
}

// documentProblems adds the failures of an operation: those of all operations, and its own.
// Each is a reference to its description among the components.
func documentProblems(op *huma.Operation) {
	switch {
	case op.Path == "/healthz":
		return // it does not fail
	case op.Path == "/readyz":
		op.Responses["503"] = &huma.Response{Description: "The daemon is about to end", Content: op.Responses["200"].Content}
		return
	}
	failures := []int{http.StatusServiceUnavailable}
	if len(op.Security) > 0 {
		failures = append(failures, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, statusCanceled,
			http.StatusInternalServerError, http.StatusGatewayTimeout, http.StatusInsufficientStorage, http.StatusUnprocessableEntity)
	}
	if strings.Contains(op.Path, "{") {
		failures = append(failures, http.StatusNotFound, http.StatusConflict)
	}
	if slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.Name == httpwire.IdempotencyHeader }) {
		failures = append(failures, http.StatusConflict, http.StatusRequestEntityTooLarge)
	}
	if op.Responses["101"] != nil && op.Responses["200"] == nil {
		failures = append(failures, http.StatusUpgradeRequired)
	}
	for status := range op.Responses {
		if n, err := strconv.Atoi(status); err == nil && n >= http.StatusBadRequest {
			failures = append(failures, n)
		}
	}
	for _, n := range failures {
		op.Responses[strconv.Itoa(n)] = &huma.Response{Ref: "#/components/responses/" + failureTexts[n].name}
	}
}

// documentQuery documents the demands of CheckQuery on the parameters of a query. The schemas
// of the framework stay as they are: its error messages would differ.
func documentQuery(op *huma.Operation) {
	least := 1
	for i, p := range op.Parameters {
		if p.In == "query" && p.Schema.Type == huma.TypeString && len(p.Schema.Enum) == 0 && p.Schema.Pattern == "" && !slices.Contains(route.MayBeEmpty, p.Name) {
			param, schema := *p, *p.Schema
			schema.MinLength = &least
			param.Schema = &schema
			op.Parameters[i] = &param
		}
	}
}

// closedSets are the types with a closed set of values. Each is a schema of its own, so that
// generators of clients make a type of it.
var closedSets = map[reflect.Type]closedSet{
	reflect.TypeFor[api.State]():                setOf("State of a sandbox", append(api.States(), api.StateDestroyed)...),
	reflect.TypeFor[api.SnapshotState]():        setOf("State of a snapshot", append(api.SnapshotStates(), api.SnapshotDeleted)...),
	reflect.TypeFor[api.ChangeKind]():           setOf("Kind of a difference; `undecided` is a variable of which only a part was compared, without a difference", api.Added, api.Modified, api.Deleted, api.Renamed, api.Undecided),
	reflect.TypeFor[api.NoHunks]():              setOf("Why a file was not compared line by line; `limit` is that of all files together", api.NoHunksBinary, api.NoHunksTooLarge, api.NoHunksLimit),
	reflect.TypeFor[api.EventKind]():            setOf("Kind of an event", api.EventKinds...),
	reflect.TypeFor[api.Layer]():                setOf("Whether a layer of isolation confines the sandbox", api.LayerOn, api.LayerOff),
	reflect.TypeFor[api.Scope]():                setOf("Rights of a token: `read` reads everything, files included; `exec` also acts inside of sandboxes; `admin` also creates, changes and removes things", api.ScopeRead, api.ScopeExec, api.ScopeAdmin),
	reflect.TypeFor[api.ContextState]():         setOf("State of an interpreter", api.ContextIdle, api.ContextBusy, api.ContextEnded),
	reflect.TypeFor[api.IdleAction]():           setOf("Action on a sandbox after its idle timeout", api.IdleHibernate, api.IdlePause, api.IdleDestroy),
	reflect.TypeFor[api.MergeStrategy]():        setOf("Treatment of conflicts: paths stay as they are, the sandbox or the merged side wins, or nothing is merged at all", api.MergeLeave, api.MergeOurs, api.MergeTheirs, api.MergeFail),
	reflect.TypeFor[api.StepKind]():             setOf("Kind of a step", api.StepStart, api.StepExec, api.StepRunCode, api.StepFiles),
	reflect.TypeFor[api.ExploreBy]():            setOf("Where the score of an attempt comes from", api.ExploreBys...),
	reflect.TypeFor[api.ExploreGoal]():          setOf("Which scores are good ones", api.GoalMax, api.GoalMin),
	reflect.TypeFor[api.ExploreStrategy]():      setOf("How an exploration goes on: all attempts run to their end, or until enough have succeeded, or the better ones run again with a larger budget, or the best ones are forked", api.ExploreStrategies...),
	reflect.TypeFor[api.ExploreThen]():          setOf("What becomes of the winners of an exploration", api.ThenPromote, api.ThenMerge, api.ThenNone),
	reflect.TypeFor[api.ExploreKeep]():          setOf("Which attempts of an exploration stay as sandboxes", api.KeepNone, api.KeepWinners, api.KeepAll),
	reflect.TypeFor[api.ExplorationState]():     setOf("State of an exploration; the last four are final", api.ExplorationStates...),
	reflect.TypeFor[api.AttemptState]():         setOf("State of an attempt; `stopped` is before its run had ended", api.AttemptStates...),
	reflect.TypeFor[api.ExplorationEventKind](): setOf("The thing that changed", api.ExplorationChanged, api.AttemptChanged, api.RoundChanged),
	reflect.TypeFor[api.Code]():                 setOf("The kind of a problem, for programs; none is ever renamed", api.Codes()...),
}

// closedSet is all values of a type.
type closedSet struct {
	text   string
	values []any
}

func setOf[T ~string](text string, values ...T) closedSet {
	s := closedSet{text: text}
	for _, v := range values {
		s.values = append(s.values, string(v))
	}
	return s
}

// nameClosedSets makes members whose types are closed sets references to these.
func nameClosedSets(r *route.Router) {
	schemas := r.OpenAPI().Components.Schemas
	for t, set := range closedSets {
		s := &huma.Schema{Type: huma.TypeString, Description: set.text, Enum: set.values}
		s.PrecomputeMessages()
		schemas.Map()[t.Name()] = s
	}
	for name, s := range schemas.Map() {
		t := schemas.TypeFromRef("#/components/schemas/" + name)
		if t == nil || t.Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(t) {
			member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			of := s.Properties[member]
			if of == nil {
				continue
			}
			if f.Type.Kind() == reflect.Uint32 {
				of.Format = "int64" // int32 has half of them
			}
			if _, ok := closedSets[f.Type]; ok {
				s.Properties[member] = &huma.Schema{Ref: "#/components/schemas/" + f.Type.Name(), Description: of.Description}
			}
		}
	}
	for _, op := range r.Operations {
		for i, p := range op.Parameters {
			if p.Name == "kind" && p.Schema.Type == huma.TypeArray {
				param, schema := *p, *p.Schema // the framework would name another field in errors
				schema.Items = &huma.Schema{Ref: fmt.Sprintf("#/components/schemas/%s", reflect.TypeFor[api.EventKind]().Name())}
				param.Schema = &schema
				op.Parameters[i] = &param
			}
		}
	}
}

// documentBrowser adds the way in which browsers authenticate to an operation that answers
// with a WebSocket or a stream of events.
func documentBrowser(op *huma.Operation) {
	if auth.RightOf(op.Method + " " + op.Path).InURL {
		op.Security = append(op.Security, map[string][]string{route.BrowserScheme: op.Security[0][route.TokenScheme]})
	}
}
