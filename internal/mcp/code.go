package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
)

type codeInput struct {
	Sandbox  string `json:"sandbox" jsonschema:"id or name of the sandbox"`
	Code     string `json:"code" jsonschema:"code of a cell, as in a notebook: the value of the last expression is its result"`
	Language string `json:"language,omitempty" enum:"python,node,bash" jsonschema:"python if absent"`
	Context  string `json:"context,omitempty" jsonschema:"interpreter that runs it, by a name of yours: each has variables of its own; that of the language if absent"`
	Timeout  int64  `json:"timeout_s,omitempty" minimum:"0" jsonschema:"interrupt it after so many seconds; 120 if absent"`
}

type codeOutput struct {
	Result  string     `json:"result,omitempty" jsonschema:"text of the value of the last expression"`
	Stdout  string     `json:"stdout,omitempty" jsonschema:"what it printed"`
	Stderr  string     `json:"stderr,omitempty" jsonschema:"what it printed to standard error"`
	Error   *codeError `json:"error,omitempty" jsonschema:"the exception that ended it"`
	Context string     `json:"context" jsonschema:"interpreter that ran it"`
	Images  int        `json:"images,omitempty" jsonschema:"how many images it showed, which follow"`
}

type codeError struct {
	Name      string `json:"name" jsonschema:"class of the exception"`
	Value     string `json:"value" jsonschema:"text of the exception"`
	Traceback string `json:"traceback,omitempty" jsonschema:"where it was raised"`
}

// Text implements output.
func (o codeOutput) Text() string {
	failed := ""
	if o.Error != nil {
		failed = o.Error.Traceback
		if failed == "" {
			failed = o.Error.Name + ": " + o.Error.Value
		}
	}
	text := lines(o.Stdout, o.Stderr, o.Result, failed)
	if text == "" {
		return "[no output]"
	}
	return text
}

func (s *server) addRunCode(to *sdk.Server) {
	add(s, to, "run_code", "Run code in a sandbox",
		"Run code in an interpreter that stays: variables, imports and loaded data are there in the next call, and in every fork of the sandbox. Use it in place of ramet_exec for work with data. Images that the code shows are returned.",
		changes, runCode)
}

// maxImages and maxImage bound the images of an answer.
const (
	maxImages = 4
	maxImage  = 1 << 20
)

func runCode(ctx context.Context, c *call, in codeInput) (out codeOutput, err error) {
	if in.Timeout == 0 {
		in.Timeout = 120
	}
	var stdout, stderr bounded
	res, err := c.daemon.Contexts.RunCodeStream(ctx, in.Sandbox, api.RunCodeRequest{
		Code: in.Code, Language: in.Language, Context: in.Context, TimeoutMS: in.Timeout * 1000,
	}, api.RunIO{Stdout: &stdout, Stderr: &stderr, Result: func(shown map[string]json.RawMessage) error {
		c.show(shown)
		return nil
	}})
	if err != nil {
		return out, err
	}
	out = codeOutput{Stdout: stdout.String(), Stderr: stderr.String(), Context: res.Context, Images: len(c.images)}
	out.Result, _ = cut(res.Result, maxText)
	if e := res.Error; e != nil {
		out.Error = &codeError{Name: e.Name}
		out.Error.Value, _ = cut(e.Value, 2000)
		var trace bounded
		fmt.Fprint(&trace, e.Traceback)
		out.Error.Traceback = trace.String()
		if res.TimedOut {
			out.Error.Value += fmt.Sprintf(" (interrupted after %d s: timeout_s)", in.Timeout)
		}
	}
	return out, nil
}

// show keeps the images of a result.
func (c *call) show(shown map[string]json.RawMessage) {
	for _, kind := range []string{"image/png", "image/jpeg", "image/webp"} {
		var data []byte // in base64
		if raw := shown[kind]; len(c.images) < maxImages && len(raw) < maxImage && json.Unmarshal(bytes.ReplaceAll(raw, []byte(`\n`), nil), &data) == nil && len(data) > 0 {
			c.images = append(c.images, &sdk.ImageContent{Data: data, MIMEType: kind})
			return
		}
	}
}

// firstLine returns the first line of a text, cut.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line, _ = cut(line, 200)
	return line
}
