package mcp

import (
	"context"
	"errors"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/client"
)

// instructions tell a model what the tools are for, once.
const instructions = `Ramet runs code in sandboxes that can be forked while they run: a fork has all files, memory, processes and open files of its parent, and is made in milliseconds.
Work like this: ramet_create a sandbox once and prepare it with ramet_exec (install packages, start servers, load data). To try several ways, ramet_fork it, work in the children, ramet_inspect two of them to compare, and ramet_promote the best one to its parent or merge its files. ramet_explore does all of this in one call if each attempt is a command with a score. Before something dangerous, ramet_snapshot; after it went wrong, roll back.
Sandboxes have no network unless ramet_create gives them one. Tools take the id or the name of a sandbox.`

// server has the tools for one client.
type server struct {
	daemon *client.Client
	// start starts the daemon again if it has ended; nil if that is for somebody else.
	start func(context.Context) error
}

// NewServer returns a server whose tools and resources are those of a daemon, with the rights of the client.
// start, if not nil, starts the daemon if none runs.
func NewServer(version string, daemon *client.Client, start func(context.Context) error) *sdk.Server {
	s := &server{daemon, start}
	out := sdk.NewServer(&sdk.Implementation{
		Name: "ramet", Title: "Ramet: sandboxes that fork", Version: version, WebsiteURL: "https://ramet.dev",
	}, &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}}, // the lists never change
		SchemaCache:  schemas,
		// What a token may see is its owner's business, and no cache's between.
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
	})
	s.addCreate(out)
	s.addInspect(out)
	s.addExec(out)
	s.addRunCode(out)
	s.addFiles(out)
	s.addFork(out)
	s.addPromote(out)
	s.addSnapshot(out)
	s.addExplore(out)
	s.addDestroy(out)
	s.addResources(out)
	return out
}

// ServeStdio serves the protocol on standard input and output, until the input or ctx ends.
func ServeStdio(ctx context.Context, version string, daemon *client.Client, start func(context.Context) error) error {
	err := NewServer(version, daemon, start).Run(ctx, &sdk.StdioTransport{})
	if errors.Is(err, context.Canceled) {
		return nil // a signal is how some programs end it
	}
	return err
}

// schemas are those of the tools: over HTTP each request has a server of its own.
var schemas = sdk.NewSchemaCache()

// call is one call of a tool.
type call struct {
	*server
	req *sdk.CallToolRequest
	// links and images are added to the answer.
	links  []*sdk.ResourceLink
	images []*sdk.ImageContent
	done   float64 // progress that was told
}

// output is what a tool answers. Text is for models; clients for programs take the fields.
type output interface{ Text() string }

// kind says what a tool does to the sandboxes.
type kind int

const (
	reads    kind = iota // changes nothing
	adds                 // makes new things
	changes              // may overwrite something
	destroys             // and cannot be repeated
)

// add adds a tool.
func add[In any, Out output](s *server, to *sdk.Server, name, title, description string, k kind, handle func(context.Context, *call, In) (Out, error)) {
	yes, no := true, false
	notes := &sdk.ToolAnnotations{Title: title, ReadOnlyHint: k == reads, DestructiveHint: &no, OpenWorldHint: &no}
	if k >= changes {
		notes.DestructiveHint = &yes
	}
	sdk.AddTool(to, &sdk.Tool{
		Name: "ramet_" + name, Title: title, Description: description, Annotations: notes,
		InputSchema: schemaOf[In](), OutputSchema: schemaOf[Out](),
	}, func(ctx context.Context, req *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out, error) {
		c := &call{server: s, req: req}
		out, err := handle(ctx, c, in)
		if err != nil {
			return nil, out, s.advise(ctx, err)
		}
		res := &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: out.Text()}}}
		for _, l := range c.links {
			res.Content = append(res.Content, l)
		}
		for _, i := range c.images {
			res.Content = append(res.Content, i)
		}
		return res, out, nil
	})
}

// progress tells a client that wants to know it how far a call is. total is 0 if that is not known.
func (c *call) progress(ctx context.Context, done, total float64, message string) {
	token := c.req.Params.GetProgressToken()
	if token == nil {
		return
	}
	c.done = max(done, c.done+1e-6) // it must grow
	// A client that is gone ends ctx, which the call sees.
	_ = c.req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: c.done, Total: total, Message: message})
}

// cleanUp is for what has to be done although the caller is gone.
func cleanUp(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}
