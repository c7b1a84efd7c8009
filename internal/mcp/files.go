package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
)

// maxFile is how large a file may be that is read or changed as a whole.
const maxFile = 8 << 20

type filesInput struct {
	Sandbox string `json:"sandbox" jsonschema:"id or name of the sandbox"`
	Action  string `json:"action" enum:"read,write,append,replace,list,search,mkdir,move,remove" jsonschema:"read lines of a text or an image; write, or append, content; replace old by new in a text; list a directory; search for text below a directory; mkdir, move, remove"`
	Path    string `json:"path" jsonschema:"absolute path of the file or directory"`
	Content string `json:"content,omitempty" jsonschema:"write and append: the text"`
	Old     string `json:"old,omitempty" jsonschema:"replace: text that is in the file exactly once, unless all is set"`
	New     string `json:"new,omitempty" jsonschema:"replace: what comes in its place"`
	All     bool   `json:"all,omitempty" jsonschema:"replace: all occurrences"`
	To      string `json:"to,omitempty" jsonschema:"move: absolute path that it gets"`
	Text    string `json:"text,omitempty" jsonschema:"search: regular expression (RE2) that lines match; without it files are searched by glob alone"`
	Glob    string `json:"glob,omitempty" jsonschema:"list and search: only files whose name matches, such as *.py, or whose path below the directory does, such as src/**/*.ts"`
	Line    int    `json:"line,omitempty" minimum:"1" jsonschema:"read: first line; 1 if absent"`
	Lines   int    `json:"lines,omitempty" minimum:"1" jsonschema:"read: how many lines; as many as fit if absent"`
	Depth   int    `json:"depth,omitempty" minimum:"1" maximum:"32" jsonschema:"list: levels of directories; 1 if absent"`
}

type filesOutput struct {
	Content   string     `json:"content,omitempty" jsonschema:"lines that were read"`
	NextLine  int        `json:"next_line,omitempty" jsonschema:"read: line to go on at, if there are more"`
	Entries   []fileLine `json:"entries,omitempty" jsonschema:"files, or lines that match"`
	Size      int64      `json:"size,omitempty" jsonschema:"bytes of the file"`
	Truncated bool       `json:"truncated,omitempty" jsonschema:"there is more: narrow it down"`
	text      string
}

type fileLine struct {
	Path string `json:"path" jsonschema:"absolute path"`
	Type string `json:"type,omitempty" jsonschema:"file, dir, symlink and so on"`
	Size int64  `json:"size,omitempty" jsonschema:"bytes"`
	Line int    `json:"line,omitempty" jsonschema:"search: number of the line"`
	Text string `json:"text,omitempty" jsonschema:"search: the line"`
}

// Text implements output.
func (o filesOutput) Text() string { return o.text }

func (s *server) addFiles(to *sdk.Server) {
	add(s, to, "files", "Read and change files of a sandbox",
		"Read, write, edit, list, search, move and remove files of a sandbox. replace edits a part of a text file. Use it in place of cat, sed and grep by ramet_exec: what it answers is bounded, and nothing has to be quoted.",
		changes, files)
}

func files(ctx context.Context, c *call, in filesInput) (filesOutput, error) {
	ref := api.FileRef{Path: in.Path}
	switch in.Action {
	case "read":
		return c.read(ctx, in)
	case "write", "append":
		return c.put(ctx, in, strings.NewReader(in.Content), api.WriteRequest{FileRef: ref, Append: in.Action == "append", Parents: true})
	case "replace":
		return c.replace(ctx, in)
	case "list":
		return c.list(ctx, in)
	case "search":
		return c.search(ctx, in)
	case "move":
		if in.To == "" {
			return filesOutput{}, api.Invalid("to", "move needs the path that the file gets")
		}
	}
	_, err := c.daemon.Files.Change(ctx, in.Sandbox, api.FileChange{
		FileRef: ref, Action: api.FileAction(in.Action), To: in.To, Parents: in.Action != "remove", Recursive: in.Action == "remove",
	})
	return filesOutput{text: "done"}, err
}

// get returns the contents of a file.
func (c *call) get(ctx context.Context, in filesInput) ([]byte, error) {
	r, size, err := c.daemon.Files.Read(ctx, in.Sandbox, api.FileRef{Path: in.Path})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > maxFile {
		return nil, api.Invalid("path", "%s has %d bytes, more than %d: use head, sed or another command with ramet_exec", in.Path, size, maxFile)
	}
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = api.Invalid("path", "%s has more than %d bytes: use head, sed or another command with ramet_exec", in.Path, maxFile)
	}
	return data, err
}

func (c *call) read(ctx context.Context, in filesInput) (out filesOutput, err error) {
	data, err := c.get(ctx, in)
	if err != nil {
		return out, err
	}
	out.Size = int64(len(data))
	if kind := http.DetectContentType(data); strings.HasPrefix(kind, "image/") && len(data) <= maxImage {
		c.images = append(c.images, &sdk.ImageContent{Data: data, MIMEType: kind})
		out.text = fmt.Sprintf("an image of %d bytes", len(data))
		return out, nil
	}
	if !utf8.Valid(data) {
		c.links = append(c.links, &sdk.ResourceLink{URI: fileURI(in.Sandbox, in.Path), Name: in.Path, MIMEType: "application/octet-stream", Size: &out.Size})
		out.text = fmt.Sprintf("a binary file of %d bytes", len(data))
		return out, nil
	}
	first := max(in.Line, 1)
	rest, at := string(data), 1
	for ; at < first && rest != ""; at++ {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	var b strings.Builder
	for n := 0; rest != "" && (in.Lines == 0 || n < in.Lines); n++ {
		line, after, _ := strings.Cut(rest, "\n")
		if b.Len()+len(line) > maxText {
			if b.Len() > 0 {
				break
			}
			line, _ = cut(line, maxText) // one line that is longer than all that is answered
			out.Truncated = true
		}
		b.WriteString(line)
		b.WriteByte('\n')
		rest, at = after, at+1
	}
	out.Content, out.text = b.String(), b.String()
	if rest != "" {
		out.NextLine, out.Truncated = at, true
		out.text += fmt.Sprintf("[more from line %d]", at)
	}
	if out.text == "" {
		out.text = "[no lines]"
	}
	return out, nil
}

func (c *call) put(ctx context.Context, in filesInput, from io.Reader, req api.WriteRequest) (out filesOutput, err error) {
	info, err := c.daemon.Files.Write(ctx, in.Sandbox, req, from)
	if err != nil {
		return out, err
	}
	out.Size = info.Size
	out.text = fmt.Sprintf("%s has %d bytes", info.Path, info.Size)
	return out, nil
}

// replace edits a file, unless it is changed meanwhile.
func (c *call) replace(ctx context.Context, in filesInput) (out filesOutput, err error) {
	if in.Old == "" {
		return out, api.Invalid("old", "replace needs the text to replace: write makes a file")
	}
	info, err := c.daemon.Files.Stat(ctx, in.Sandbox, api.FileRef{Path: in.Path})
	if err != nil {
		return out, err
	}
	data, err := c.get(ctx, in)
	if err != nil {
		return out, err
	}
	n := bytes.Count(data, []byte(in.Old))
	switch {
	case n == 0:
		return out, api.Invalid("old", "the text is not in %s: read it again, spaces and line ends count", in.Path)
	case n > 1 && !in.All:
		return out, api.Invalid("old", "the text is in %s %d times: give more of what is around it, or set all", in.Path, n)
	}
	data = bytes.ReplaceAll(data, []byte(in.Old), []byte(in.New))
	return c.put(ctx, in, bytes.NewReader(data), api.WriteRequest{FileRef: api.FileRef{Path: in.Path}, Atomic: true, IfMatch: []string{info.ETag}})
}

var errEnough = errors.New("enough")

func (c *call) list(ctx context.Context, in filesInput) (out filesOutput, err error) {
	err = c.daemon.Files.List(ctx, in.Sandbox, api.ListRequest{FileRef: api.FileRef{Path: in.Path}, Depth: max(in.Depth, 1), Glob: in.Glob}, func(f api.FileInfo) error {
		if len(out.Entries) == maxShown {
			out.Truncated = true
			return errEnough
		}
		out.Entries = append(out.Entries, fileLine{Path: f.Path, Type: f.Type, Size: f.Size})
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return out, err
	}
	out.text = out.table()
	return out, nil
}

func (c *call) search(ctx context.Context, in filesInput) (out filesOutput, err error) {
	if in.Text == "" && in.Glob == "" {
		return out, api.Invalid("text", "search needs text, glob or both")
	}
	res, err := c.daemon.Files.Search(ctx, in.Sandbox, api.SearchRequest{
		FileRef: api.FileRef{Path: in.Path}, Glob: in.Glob, Text: in.Text, Regexp: true, Limit: maxShown,
	})
	if err != nil {
		return out, err
	}
	room := maxText
	for _, m := range res.Matches {
		text, _ := cut(m.Text, 300)
		if room -= len(text) + len(m.File.Path) + 8; room < 0 {
			out.Truncated = true
			break
		}
		out.Entries = append(out.Entries, fileLine{Path: m.File.Path, Line: m.Line, Text: text})
	}
	out.Truncated = out.Truncated || res.Truncated
	out.text = out.table()
	return out, nil
}

// table returns the entries as lines.
func (o filesOutput) table() string {
	var text []string
	for _, e := range o.Entries {
		switch {
		case e.Line > 0:
			text = append(text, fmt.Sprintf("%s:%d:%s", e.Path, e.Line, e.Text))
		case e.Type == "dir":
			text = append(text, e.Path+"/")
		case e.Type == "file":
			text = append(text, fmt.Sprintf("%s (%d bytes)", e.Path, e.Size))
		default:
			text = append(text, e.Path)
		}
	}
	switch {
	case len(text) == 0:
		text = append(text, "[nothing]")
	case o.Truncated:
		text = append(text, "[there are more]")
	}
	return strings.Join(text, "\n")
}

// fileURI is the resource of a file: its path follows as it is.
func fileURI(ref, path string) string {
	return "ramet://" + url.PathEscape(ref) + "/files" + (&url.URL{Path: path}).EscapedPath()
}
