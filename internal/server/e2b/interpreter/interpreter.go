package interpreter

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/e2b/envd"
	"ramet.dev/ramet/internal/service"
)

// Interpreter answers for the interpreters of all sandboxes. It is safe for concurrent use.
type Interpreter struct {
	svc service.Contexts
	mux *http.ServeMux
}

// languages are ours for the names that clients use.
var languages = map[string]string{
	"": "python", "python": "python", "python3": "python",
	"javascript": "node", "js": "node", "node": "node", "bash": "bash", "sh": "bash",
}

// names are those of clients for our languages.
var names = map[string]string{"node": "javascript"}

// language returns our name of a language.
func language(name string) (string, error) {
	if l, ok := languages[strings.ToLower(name)]; ok {
		return l, nil
	}
	return "", api.Errorf(api.CodeUnsupported, "language %.40q is none of python, javascript and bash", name)
}

// maxBody bounds a request: code, and variables.
const maxBody = 16 << 20

// request is one for the interpreters of a sandbox, as a user.
type request struct {
	*http.Request
	sandbox, user string
	// defaults are our languages whose default contexts clients find, whether they run yet or not.
	defaults []string
}

// routes are what an interpreter answers.
var routes = map[string]func(*Interpreter, http.ResponseWriter, request){
	"POST /execute":  (*Interpreter).execute,
	"GET /contexts":  (*Interpreter).list,
	"POST /contexts": (*Interpreter).create,
	"DELETE /contexts/{id}": func(i *Interpreter, w http.ResponseWriter, r request) {
		i.change(w, i.svc.DestroyContext(r.Context(), r.sandbox, r.PathValue("id")), http.StatusNoContent)
	},
	"POST /contexts/{id}/restart": func(i *Interpreter, w http.ResponseWriter, r request) {
		if id := r.PathValue("id"); slices.Contains(r.defaults, id) {
			if err := i.ensure(r, id); err != nil {
				envd.WriteError(w, err)
				return
			}
		}
		_, err := i.svc.RestartContext(r.Context(), r.sandbox, r.PathValue("id"))
		i.change(w, err, http.StatusOK)
	},
	"GET /health": func(i *Interpreter, w http.ResponseWriter, r request) {
		_, err := i.svc.Contexts(r.Context(), r.sandbox)
		i.change(w, err, http.StatusOK)
	},
}

// Routes returns what an interpreter answers, as METHOD /path.
func Routes() []string { return slices.Sorted(maps.Keys(routes)) }

type requestKey struct{}

// New returns an Interpreter.
func New(svc service.Contexts) *Interpreter {
	i := &Interpreter{svc: svc, mux: http.NewServeMux()}
	for pattern, handle := range routes {
		i.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			own := r.Context().Value(requestKey{}).(request)
			own.Request = r
			handle(i, w, own)
		})
	}
	return i
}

// Serve answers a request for the interpreters of a sandbox, as a user. Where code says so, the sandbox has an
// interpreter of Python and one of JavaScript from the first request on.
func (i *Interpreter) Serve(w http.ResponseWriter, r *http.Request, sandbox, user string, code bool) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	own := request{sandbox: sandbox, user: user}
	if code {
		own.defaults = []string{"python", "node"}
	}
	i.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, own)))
}

func (i *Interpreter) change(w http.ResponseWriter, err error, status int) {
	if err != nil {
		envd.WriteError(w, err)
		return
	}
	w.WriteHeader(status)
}

// execution is a request for a cell.
type execution struct {
	Code     string            `json:"code"`
	Context  string            `json:"context_id"`
	Language string            `json:"language"`
	Env      map[string]string `json:"env_vars"`
}

// lines writes the events of a cell, one on a line.
type lines struct {
	mu   sync.Mutex
	to   *json.Encoder
	rc   *http.ResponseController
	sent bool // a line; guarded by mu
}

// begun reports whether there is a line.
func (l *lines) begun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

func (l *lines) send(v map[string]any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = true
	if err := l.to.Encode(v); err != nil {
		return err
	}
	return l.rc.Flush()
}

// output writes what a cell prints.
type output struct {
	lines *lines
	kind  string
}

func (o output) Write(b []byte) (int, error) {
	err := o.lines.send(map[string]any{"type": o.kind, "text": string(b), "timestamp": time.Now().UTC().Format(time.RFC3339Nano)})
	return len(b), err
}

// mediaNames are the names that clients have for forms of a result.
var mediaNames = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg",
	"application/pdf": "pdf", "text/latex": "latex", "application/json": "json", "application/javascript": "javascript",
	"e2b/data": "data", "e2b/chart": "chart",
}

// result returns a result as clients read it.
func result(forms map[string]json.RawMessage) map[string]any {
	out := map[string]any{"type": "result"}
	extra := map[string]any{}
	for media, data := range forms {
		if name := mediaNames[media]; name != "" {
			out[name] = data
		} else {
			extra[media] = data
		}
	}
	if len(extra) > 0 {
		out["extra"] = extra
	}
	return out
}

// execute runs a cell. When the client leaves, the cell is interrupted.
func (i *Interpreter) execute(w http.ResponseWriter, r request) {
	var in execution
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		envd.WriteError(w, api.Invalid("body", "it is not a request for a cell: %v", err))
		return
	}
	req := api.RunCodeRequest{Code: in.Code, Context: in.Context}
	lang, err := language(in.Language)
	byDefault := in.Context == "" || slices.Contains(r.defaults, in.Context)
	switch {
	case err != nil:
	case in.Context == "":
		req.Language = lang
	case byDefault:
		lang = in.Context
	case len(in.Env) > 0:
		lang, err = i.languageOf(r, in.Context)
	}
	var set, restore string // before an interpreter starts: the variables may be refused
	if err == nil && len(in.Env) > 0 {
		set, restore, err = variables(lang, in.Env)
	}
	if err == nil && byDefault {
		err = i.ensure(r, lang)
	}
	if err != nil {
		envd.WriteError(w, err)
		return
	}
	out := &lines{to: json.NewEncoder(w), rc: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "application/x-ndjson")
	var last map[string]any // the result that may be that of the last expression
	results := func(forms map[string]json.RawMessage) error {
		if last != nil {
			unquote(last)
			if err := out.send(last); err != nil {
				return err
			}
		}
		last = result(forms)
		return nil
	}
	var res *api.RunResult
	err = i.between(r.Context(), r.sandbox, req, lang, set, restore, func() (err error) {
		res, err = i.svc.RunCode(r.Context(), r.sandbox, req, api.RunIO{Stdout: output{out, "stdout"}, Stderr: output{out, "stderr"}, Result: results})
		return err
	})
	if err != nil {
		if out.begun() || envd.Gone(err) { // the cell's end is missing, or the sandbox ended meanwhile
			_ = out.rc.Flush() // clients expect that the connection breaks in the answer, which begins with this
			envd.BreakOff()
		}
		envd.WriteError(w, err)
		return
	}
	if last != nil {
		last["is_main_result"] = res.Result != "" && isText(last["text"], res.Result)
		unquote(last)
		err = out.send(last)
	}
	if err == nil && res.Error != nil {
		err = out.send(map[string]any{"type": "error", "name": res.Error.Name, "value": res.Error.Value, "traceback": res.Error.Traceback})
	}
	if err == nil {
		err = out.send(map[string]any{"type": "number_of_executions", "execution_count": res.ExecutionCount})
	}
	if err == nil {
		_ = out.send(map[string]any{"type": "end_of_execution"}) // the client is gone
	}
}

// unquote takes the quotes from the text of a string, as E2B's interpreter does.
func unquote(result map[string]any) {
	raw, _ := result["text"].(json.RawMessage)
	var s string
	if json.Unmarshal(raw, &s) != nil || len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '\'' && s[0] != '"' {
		return
	}
	result["text"] = s[1 : len(s)-1]
}

// isText reports whether a form of a result is a text.
func isText(form any, text string) bool {
	raw, _ := form.(json.RawMessage)
	var s string
	return json.Unmarshal(raw, &s) == nil && s == text
}

// ensure makes the default context of a language for a user, so that it runs as that user.
func (i *Interpreter) ensure(r request, lang string) error {
	if r.user == "" {
		return nil
	}
	all, err := i.svc.Contexts(r.Context(), r.sandbox)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Name == lang {
			return nil
		}
	}
	_, err = i.svc.CreateContext(r.Context(), r.sandbox, api.ContextRequest{Language: lang, Name: lang, User: r.user, Cwd: home(r.user)})
	if api.CodeOf(err) == api.CodeNameTaken || api.CodeOf(err) == api.CodeConflict {
		return nil // another cell made it
	}
	return err
}

// languageOf returns our name of the language of a context.
func (i *Interpreter) languageOf(r request, name string) (string, error) {
	all, err := i.svc.Contexts(r.Context(), r.sandbox)
	if err != nil {
		return "", err
	}
	for k := range all {
		if all[k].Name == name {
			return all[k].Language, nil
		}
	}
	return "", api.NotFound("context", name)
}

func home(user string) string {
	if user == "root" || user == "" {
		return "/root"
	}
	return "/home/" + user
}

// AddEnv adds variables to the environment of the interpreters that run already: those that a warm snapshot
// has were started without them.
func (i *Interpreter) AddEnv(ctx context.Context, sandbox string, env map[string]string) error {
	if len(env) == 0 {
		return nil
	}
	all, err := i.svc.Contexts(ctx, sandbox)
	if err != nil {
		return err
	}
	for _, c := range all {
		code, _, err := variables(c.Language, env)
		if err == nil {
			err = i.quietly(ctx, sandbox, api.RunCodeRequest{Context: c.Name}, c.Language, code)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// codeContext is a context as clients read it.
type codeContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

func describe(c *api.Context) codeContext {
	return codeContext{ID: c.Name, Language: cmp.Or(names[c.Language], c.Language), Cwd: c.Cwd}
}

func (i *Interpreter) list(w http.ResponseWriter, r request) {
	all, err := i.svc.Contexts(r.Context(), r.sandbox)
	if err != nil {
		envd.WriteError(w, err)
		return
	}
	for _, lang := range r.defaults { // they start with their first cell
		if !slices.ContainsFunc(all, func(c api.Context) bool { return c.Name == lang }) {
			all = slices.Insert(all, 0, api.Context{Name: lang, Language: lang, Cwd: home(r.user)})
		}
	}
	out := []codeContext{}
	for k := range all {
		out = append(out, describe(&all[k]))
	}
	writeJSON(w, out)
}

func (i *Interpreter) create(w http.ResponseWriter, r request) {
	var in struct {
		Language string `json:"language"`
		Cwd      string `json:"cwd"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		envd.WriteError(w, api.Invalid("body", "it is not a request for a context: %v", err))
		return
	}
	lang, err := language(in.Language)
	if err != nil {
		envd.WriteError(w, err)
		return
	}
	c, err := i.svc.CreateContext(r.Context(), r.sandbox, api.ContextRequest{Language: lang, Cwd: cmp.Or(in.Cwd, home(r.user)), User: r.user})
	if err != nil {
		envd.WriteError(w, err)
		return
	}
	writeJSON(w, describe(c))
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}
