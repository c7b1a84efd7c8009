package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestSchemas looks at what models are told: each argument and each field is described, and values that are
// bounded say so.
func TestSchemas(t *testing.T) {
	client, server := sdk.NewInMemoryTransports()
	session, err := NewServer("1", nil, nil).Connect(t.Context(), server, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tools, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, tool := range tools.Tools {
		for _, schema := range []any{tool.InputSchema, tool.OutputSchema} {
			text, err := json.Marshal(schema)
			if err != nil {
				t.Fatal(err)
			}
			size += len(text)
			described(t, tool.Name, schema.(map[string]any))
		}
		size += len(tool.Description)
	}
	if size > 40<<10 {
		t.Errorf("the tools take %d bytes, which a model reads in each session", size)
	}
	action := tools.Tools[0]
	for _, tool := range tools.Tools {
		if tool.Name == "ramet_snapshot" {
			action = tool
		}
	}
	text, err := json.Marshal(action.InputSchema)
	if err != nil || !strings.Contains(string(text), `"enum":["create","rollback","restore","push","pull"]`) || !strings.Contains(string(text), `"maximum":100`) {
		t.Errorf("ramet_snapshot takes %s: %v", text, err)
	}
}

func described(t *testing.T, of string, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	for name, p := range properties {
		p := p.(map[string]any)
		if p["description"] == nil {
			t.Errorf("%s: %s is not described", of, name)
		}
		described(t, of+"."+name, p)
		if items, ok := p["items"].(map[string]any); ok {
			described(t, of+"."+name, items)
		}
	}
}
