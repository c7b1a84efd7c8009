package mcp

import (
	"bytes"
	"context"
	"io"
	"mime"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
)

const treeURI = "ramet://tree"

// addResources adds what answers link to, and what a user may give to a model.
func (s *server) addResources(to *sdk.Server) {
	to.AddResource(&sdk.Resource{
		URI: treeURI, Name: "tree", Title: "Sandboxes and snapshots", MIMEType: "text/plain",
		Description: "The tree of all sandboxes and snapshots, by descent.",
	}, s.readTree)
	for _, t := range []struct {
		template sdk.ResourceTemplate
		read     func(context.Context, string, []string) (*sdk.ResourceContents, error)
		parts    string
	}{
		{sdk.ResourceTemplate{
			URITemplate: "ramet://{sandbox}/files{+path}", Name: "file", Title: "File of a sandbox",
			Description: "A file of a sandbox, up to 8 MiB.",
		}, s.readFile, "files"},
		{sdk.ResourceTemplate{
			URITemplate: "ramet://{sandbox}/processes/{process}/output", Name: "output", Title: "Output of a process", MIMEType: "text/plain",
			Description: "The output of a process that was started by a tool, as far as it is kept: the last MiB.",
		}, s.readOutput, "processes"},
		{sdk.ResourceTemplate{
			URITemplate: "ramet://{sandbox}/logs", Name: "logs", Title: "Logs of a sandbox", MIMEType: "text/plain",
			Description: "The end of the output of all background processes of a sandbox, with their numbers.",
		}, s.readLogs, "logs"},
	} {
		to.AddResourceTemplate(&t.template, func(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			ref, rest, ok := split(req.Params.URI)
			if !ok || rest[0] != t.parts {
				return nil, sdk.ResourceNotFoundError(req.Params.URI)
			}
			contents, err := t.read(ctx, ref, rest[1:])
			if err != nil {
				return nil, s.resourceError(ctx, req.Params.URI, err)
			}
			contents.URI = req.Params.URI
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{contents}}, nil
		})
	}
}

// split returns the sandbox of an address, and the parts of its path, of which there is one at least.
func split(uri string) (ref string, parts []string, ok bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "ramet" || u.Host == "" || !strings.HasPrefix(u.Path, "/") {
		return "", nil, false
	}
	ref, err = url.PathUnescape(u.Host)
	return ref, strings.Split(u.Path[1:], "/"), err == nil
}

// resourceError says of a thing that is not there that it is not.
func (s *server) resourceError(ctx context.Context, uri string, err error) error {
	if api.CodeOf(err) == api.CodeNotFound {
		return sdk.ResourceNotFoundError(uri)
	}
	return s.advise(ctx, err)
}

func (s *server) readTree(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	out, err := inspect(ctx, &call{server: s}, inspectInput{})
	if err != nil {
		return nil, s.resourceError(ctx, req.Params.URI, err)
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: treeURI, MIMEType: "text/plain", Text: out.text}}}, nil
}

func (s *server) readFile(ctx context.Context, ref string, parts []string) (*sdk.ResourceContents, error) {
	name := "/" + strings.Join(parts, "/")
	c := &call{server: s}
	data, err := c.get(ctx, filesInput{Sandbox: ref, Path: name})
	if err != nil {
		return nil, err
	}
	kind := mime.TypeByExtension(path.Ext(name))
	if !utf8.Valid(data) {
		return &sdk.ResourceContents{MIMEType: or(kind, "application/octet-stream"), Blob: data}, nil
	}
	return &sdk.ResourceContents{MIMEType: or(kind, "text/plain"), Text: string(data)}, nil
}

func (s *server) readOutput(ctx context.Context, ref string, parts []string) (*sdk.ResourceContents, error) {
	if len(parts) != 2 || parts[1] != "output" {
		return nil, api.NotFound("resource", strings.Join(parts, "/"))
	}
	pid, err := strconv.Atoi(parts[0])
	if err != nil {
		return nil, api.NotFound("process", parts[0])
	}
	var text bytes.Buffer
	_, err = s.daemon.Processes.Output(ctx, ref, pid, api.AttachRequest{}, func(ch api.Chunk) error {
		text.Write(ch.Data)
		return nil
	})
	return plain(text.Bytes()), err
}

func (s *server) readLogs(ctx context.Context, ref string, parts []string) (*sdk.ResourceContents, error) {
	if len(parts) > 0 {
		return nil, api.NotFound("resource", strings.Join(parts, "/"))
	}
	var text tail
	last := 0
	err := s.daemon.Processes.Logs(ctx, ref, false, func(p api.LogPiece) error {
		if len(p.Chunk.Data) == 0 {
			return nil
		}
		if p.PID != last {
			_, _ = io.WriteString(&text, "\n["+strconv.Itoa(p.PID)+"]\n")
			last = p.PID
		}
		_, _ = text.Write(p.Chunk.Data)
		return nil
	})
	return plain(bytes.TrimSpace(text.data)), err
}

func plain(data []byte) *sdk.ResourceContents {
	return &sdk.ResourceContents{MIMEType: "text/plain", Text: strings.ToValidUTF8(string(data), "�")}
}

// tail keeps the last MiB of what is written to it.
type tail struct{ data []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if over := len(t.data) - 1<<20; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
	}
	return len(p), nil
}
