package service

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
	"ramet.dev/ramet/internal/httpwire"
)

// apiOptions are the options of one request.
type apiOptions struct {
	method              string
	fields              []apiField
	headers             []string
	input               string
	include, paging     bool
	hasInput, hasMethod bool // the user gave --input, --method
}

// apiField is a field of the body or of the query. The value of a typed field is a number, a
// boolean or null if it looks like one, and the contents of a file if it begins with @.
type apiField struct {
	text  string
	typed bool
}

// apiFields is a pflag.Value that keeps the order of both options for fields.
type apiFields struct {
	to    *[]apiField
	typed bool
}

// Set implements pflag.Value.
func (f apiFields) Set(s string) error {
	if key, _, ok := strings.Cut(s, "="); !ok || key == "" {
		return errors.New("is not KEY=VALUE")
	}
	*f.to = append(*f.to, apiField{s, f.typed})
	return nil
}

// String implements pflag.Value.
func (apiFields) String() string { return "" }

// Type implements pflag.Value.
func (apiFields) Type() string { return "KEY=VALUE" }

// APICommand returns the api command.
func (g *Group) APICommand() *cobra.Command {
	var opts apiOptions
	cmd := &cobra.Command{
		Use: "api PATH", Short: "Make a request of the REST API and print the answer",
		Long: "Make a request of the REST API and print the answer. PATH is relative to /v1/ unless it begins with a slash, and may have a query.\n\n" +
			"Fields make a JSON body, and the method POST. With GET or --input, they are the query. KEY[SUB]=VALUE is a field in an object, and KEY[]=VALUE an element of a list. " +
			"-f takes values as text. -F also takes true, false, null, integers, and @FILE for the contents of a file, @- for standard input.\n\n" +
			"The answer is printed as it arrives, streams of events included. If the request fails, the problem document is printed, and the exit code is that of the error.",
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: g.CompleteFirst(cobra.FixedCompletions(
			[]string{"sandboxes", "snapshots", "images", "tree", "events", "tokens", "tenants", "audit", "/healthz", "/readyz", "/metrics", "/openapi.json"}, cobra.ShellCompDirectiveNoFileComp)),
	}
	f := cmd.Flags()
	f.StringVarP(&opts.method, "method", "X", "", "method of the request (default GET, with a body POST)")
	f.VarP(apiFields{&opts.fields, false}, "raw-field", "f", "field whose value is text; may be repeated")
	f.VarP(apiFields{&opts.fields, true}, "field", "F", "field whose value is a number, true, false, null, @FILE or text; may be repeated")
	f.StringVar(&opts.input, "input", "", "file with the body, - for standard input")
	f.StringArrayVarP(&opts.headers, "header", "H", nil, "header 'NAME: VALUE'; may be repeated")
	f.BoolVarP(&opts.include, "include", "i", false, "print the status and the headers of the answer before its body")
	f.BoolVar(&opts.paging, "paginate", false, "get all pages of a list as one")
	values.CompleteValues(cmd, "method", http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead)
	cmd.RunE = g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
		opts.hasInput, opts.hasMethod = f.Changed("input"), f.Changed("method")
		return g.api(ctx, c, args[0], opts)
	})
	return cmd
}

func (g *Group) api(ctx context.Context, c *client.Client, path string, opts apiOptions) error {
	req, err := g.apiRequest(path, opts)
	if err != nil {
		return err
	}
	defer req.close()
	if opts.paging {
		return g.apiPages(ctx, c, req, opts)
	}
	resp, err := c.Raw(ctx, req.method, req.path(), req.header, req.body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if opts.include {
		if err := g.writeHeaders(resp); err != nil {
			return err
		}
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return g.apiProblem(resp)
	}
	return g.writeAnswer(resp)
}

// apiRequest is a request that is to be sent.
type apiRequest struct {
	method string
	url    *url.URL
	query  url.Values
	header http.Header
	body   io.Reader
	close  func()
}

func (r *apiRequest) path() string {
	u := *r.url
	u.RawQuery = r.query.Encode()
	return u.String()
}

func (g *Group) apiRequest(path string, opts apiOptions) (*apiRequest, error) {
	r := &apiRequest{method: strings.ToUpper(opts.method), header: http.Header{"Accept": {"*/*"}}, close: func() {}}
	var err error
	if r.url, err = apiURL(path); err != nil {
		return nil, err
	}
	if r.query, err = url.ParseQuery(r.url.RawQuery); err != nil {
		return nil, api.Invalid("path", "%q has no query such as a=b&c=d", path)
	}
	for _, h := range opts.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, api.Invalid("header", "%q is not NAME: VALUE", h)
		}
		r.header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if !opts.hasMethod {
		r.method = http.MethodGet
		if (len(opts.fields) > 0 || opts.hasInput) && !opts.paging {
			r.method = http.MethodPost
		}
	}
	switch {
	case opts.paging && (r.method != http.MethodGet || opts.hasInput || opts.include):
		return nil, api.Invalid("paginate", "it is for lists: a GET without --input and --include")
	case opts.hasInput:
		in, err := g.openInput(opts.input)
		if err != nil {
			return nil, api.Invalid("input", "%w", err)
		}
		r.body, r.close = in, func() { in.Close() }
	case r.method != http.MethodGet && r.method != http.MethodHead && len(opts.fields) > 0:
		body, err := g.apiBody(opts.fields)
		if err != nil {
			return nil, err
		}
		r.body = bytes.NewReader(body)
	}
	if r.body != nil && r.header.Get("Content-Type") == "" {
		r.header.Set("Content-Type", "application/json")
	}
	if opts.hasInput || r.body == nil {
		for _, f := range opts.fields {
			key, value, err := g.apiValue(f)
			if err != nil {
				return nil, err
			}
			if value == nil {
				value = "null"
			}
			r.query.Add(strings.TrimSuffix(key, "[]"), fmt.Sprint(value))
		}
	}
	return r, nil
}

// apiURL returns the URL of PATH at the daemon.
func apiURL(path string) (*url.URL, error) {
	at := path
	if !strings.HasPrefix(at, "/") {
		at = "/v1/" + strings.TrimPrefix(at, "v1/")
	}
	u, err := url.Parse(at)
	if err != nil || u.Host != "" || strings.Contains(strings.SplitN(path, "?", 2)[0], "://") || path == "" {
		return nil, api.Invalid("path", "%q is not a path such as sandboxes/base or /healthz; --host names the daemon", path)
	}
	u.Fragment = ""
	return u, nil
}

// openInput opens a file or standard input.
func (g *Group) openInput(name string) (io.ReadCloser, error) {
	if name == console.StdStream {
		return io.NopCloser(g.In), nil
	}
	return os.Open(name)
}

// apiBody returns the JSON of fields.
func (g *Group) apiBody(fields []apiField) ([]byte, error) {
	body := map[string]any{}
	for _, f := range fields {
		key, value, err := g.apiValue(f)
		if err != nil {
			return nil, err
		}
		if err := setField(body, key, value); err != nil {
			return nil, err
		}
	}
	return json.Marshal(body)
}

// apiValue returns the name and the value of a field.
func (g *Group) apiValue(f apiField) (key string, value any, err error) {
	key, text, _ := strings.Cut(f.text, "=")
	value = text
	if f.typed {
		number, nerr := strconv.ParseInt(text, 10, 64)
		name, isFile := strings.CutPrefix(text, "@")
		switch {
		case nerr == nil:
			return key, number, nil
		case text == "true" || text == "false":
			return key, text == "true", nil
		case text == "null":
			return key, nil, nil
		case isFile:
			in, err := g.openInput(name)
			if err != nil {
				return "", nil, api.Invalid("field", "%w", err)
			}
			defer in.Close()
			content, err := io.ReadAll(in)
			if err != nil {
				return "", nil, api.Invalid("field", "%w", err)
			}
			text, value = string(content), string(content)
		}
	}
	if httpwire.NotUTF8(key+text) >= 0 {
		return "", nil, api.Invalid("field", "%q is not UTF-8: only text can be given here", key)
	}
	return key, value, nil
}

// fieldName matches KEY, or KEY[SUB]… of which the last may be [].
var fieldName = regexp.MustCompile(`^([^\[\]]+)((?:\[[^\[\]]+\])*)(\[\])?$`)

// setField sets the value at the place that a name describes.
func setField(in map[string]any, name string, value any) error {
	parts := fieldName.FindStringSubmatch(name)
	if parts == nil {
		return api.Invalid("field", "%q is not KEY, KEY[SUB] or KEY[]", name)
	}
	last := parts[1]
	if parts[2] != "" {
		for _, sub := range strings.Split(strings.Trim(parts[2], "[]"), "][") {
			within, ok := in[last].(map[string]any)
			if !ok && in[last] != nil {
				return api.Invalid("field", "%q is a field in %q, which is a value and not an object", name, last)
			}
			if !ok {
				within = map[string]any{}
				in[last] = within
			}
			in, last = within, sub
		}
	}
	if parts[3] == "" {
		if _, twice := in[last]; twice {
			return api.Invalid("field", "%q is given twice; of a list it is %s[]", name, name)
		}
		in[last] = value
		return nil
	}
	list, ok := in[last].([]any)
	if !ok && in[last] != nil {
		return api.Invalid("field", "%q is a list, and is also given as a value", name)
	}
	in[last] = append(list, value)
	return nil
}

// apiPages gets all pages of a list and prints them as one.
func (g *Group) apiPages(ctx context.Context, c *client.Client, r *apiRequest, opts apiOptions) error {
	whole := httpwire.List[json.RawMessage]{Items: []json.RawMessage{}}
	for {
		resp, err := c.Raw(ctx, r.method, r.path(), r.header, nil)
		if err != nil {
			return err
		}
		if resp.StatusCode >= http.StatusBadRequest {
			defer resp.Body.Close()
			return g.apiProblem(resp)
		}
		var page struct {
			Items []json.RawMessage `json:"items"`
			Next  string            `json:"next_page_token"`
		}
		err = json.NewDecoder(resp.Body).Decode(&page)
		resp.Body.Close()
		if err != nil || page.Items == nil {
			return api.Invalid("paginate", "what %s answers is not a list", r.url.Path)
		}
		whole.Items = append(whole.Items, page.Items...)
		if page.Next == "" {
			return g.WriteJSON(whole)
		}
		r.query.Set("page_token", page.Next)
	}
}

// apiProblem prints the answer to a failed request to standard output, and the reason to standard
// error.
func (g *Group) apiProblem(resp *http.Response) error {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var p httpwire.Problem
	known := isProblem(resp) && json.Unmarshal(body, &p) == nil && p.Code != ""
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err := g.writeAnswer(resp); err != nil {
		return err
	}
	code, text := 1, "the answer is "+resp.Status
	if known {
		code, text = p.Code.ExitCode(), cmp.Or(p.Detail, text)
	}
	if !g.JSON {
		fmt.Fprintln(g.Err, "ramet:", console.Printable(text))
	}
	return session.ExitError(code)
}

func isProblem(resp *http.Response) bool { return mediaType(resp) == httpwire.ProblemType }

func mediaType(resp *http.Response) string {
	t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return t
}

// writeHeaders prints the status and the headers of an answer.
func (g *Group) writeHeaders(resp *http.Response) error {
	text := resp.Proto + " " + resp.Status + "\n"
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		for _, value := range resp.Header[name] {
			text += name + ": " + value + "\n"
		}
	}
	_, err := io.WriteString(g.Out, console.WithoutControls(text, "\n")+"\n")
	return err
}

// writeAnswer prints the body of an answer as it arrives. On a terminal, JSON is indented, and
// control characters are made visible, because a sandbox may have written them.
func (g *Group) writeAnswer(resp *http.Response) error {
	w, finish := console.Visible(g.Out)
	if console.IsTerminal(g.Out) && (mediaType(resp) == "application/json" || isProblem(resp)) {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		var indented bytes.Buffer
		if json.Indent(&indented, body, "", "  ") == nil {
			body = append(bytes.TrimSpace(indented.Bytes()), '\n')
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	_, err := io.Copy(w, resp.Body)
	return errors.Join(err, finish())
}
