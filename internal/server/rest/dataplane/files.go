package dataplane

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"

	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// files serves the files of sandboxes.
type files struct {
	*stream.Streams
	svc service.Files
}

// Paths are parameters of the query everywhere, never of a JSON body: percent
// encoding carries all bytes.

// FileInput is the input of operations on a file. It is exported for the same
// reason as IDInput.
type FileInput struct {
	route.IDInput
	Path     string `query:"path" required:"true" doc:"absolute path in the sandbox; any bytes but NUL, percent-encoded"`
	User     string `query:"user" doc:"user whose permissions apply: name or uid, optionally :group; root if absent"`
	NoFollow bool   `query:"no_follow" doc:"do not follow a symbolic link at the path"`
}

func (in *FileInput) file() api.FileRef {
	return api.FileRef{Path: in.Path, User: in.User, NoFollow: in.NoFollow}
}

// ModeInput is an octal mode. It is exported for the same reason as IDInput.
type ModeInput struct {
	Mode string `query:"mode" pattern:"^[0-7]{1,4}$" doc:"octal"`
}

func (in *ModeInput) mode() *uint32 {
	n, err := strconv.ParseUint(in.Mode, 8, 32)
	if err != nil {
		return nil // absent; its form was checked
	}
	mode := uint32(n)
	return &mode
}

type mkdirInput struct {
	FileInput
	ModeInput
	Parents bool `query:"parents" doc:"make missing directories above it, and accept an existing directory"`
}

type moveInput struct {
	FileInput
	To      string `query:"to" required:"true" doc:"absolute path in the sandbox"`
	Parents bool   `query:"parents" doc:"make missing directories above the new path"`
	Keep    bool   `query:"keep" doc:"refuse to replace a file that exists"`
}

type removeInput struct {
	FileInput
	ConditionInput
	Recursive bool `query:"recursive" doc:"include all files below a directory"`
}

type chmodInput struct {
	FileInput
	Mode      string `query:"mode" required:"true" pattern:"^[0-7]{1,4}$" doc:"octal"`
	Recursive bool   `query:"recursive" doc:"include all files below a directory"`
}

type filesInput struct {
	FileInput
	Depth     int    `query:"depth" minimum:"0" maximum:"1000000" default:"1" doc:"levels of directories; 0 is no limit"`
	Glob      string `query:"glob" maxLength:"4096" doc:"only files that match: a pattern without a slash is for names, a pattern with slashes for paths below the directory; ** is any number of directories"`
	Limit     int    `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"files on a page"`
	PageToken string `query:"page_token" maxLength:"32768" doc:"next_page_token of the page before"`
}

type searchInput struct {
	FileInput
	Name       string `query:"name" maxLength:"4096" doc:"pattern of names, as the glob of a list"`
	Content    string `query:"content" maxLength:"4096" doc:"text that a line of the file must contain; binary files are skipped"`
	Regexp     bool   `query:"regexp" doc:"content is a regular expression (RE2)"`
	IgnoreCase bool   `query:"ignore_case" doc:"upper and lower case are the same in content"`
	Limit      int    `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"matches at most"`
}

type watchInput struct {
	FileInput
	Recursive  bool `query:"recursive" doc:"watch directories below it too, also new ones"`
	DebounceMS int  `query:"debounce_ms" minimum:"0" maximum:"60000" default:"50" doc:"how long changes are collected before they are reported"`
}

func (h *files) routeFiles(r *route.Router) {
	const tag, files = "files", "/v1/sandboxes/{id}/files"
	denied := http.StatusForbidden
	onFile := func(method, path, id, summary string, errors ...int) huma.Operation {
		return route.Operation(method, path, id, tag, summary, append(errors, route.StatusNotFound, route.StatusConflict, denied, http.StatusUnprocessableEntity)...)
	}
	h.routeContents(r, files, onFile)
	route.Register(r, onFile(http.MethodGet, files+"/stat", "stat-file", "Describe a file"), h.statFile)
	route.Register(r, onFile(http.MethodPost, files+"/mkdir", "make-directory", "Make a directory", route.StatusNoStorage),
		func(ctx context.Context, in *mkdirInput) (*route.Out[*api.FileInfo], error) {
			return h.changeFile(ctx, in.ID, api.FileChange{FileRef: in.file(), Action: api.FileMkdir, Mode: in.mode(), Parents: in.Parents})
		})
	route.Register(r, onFile(http.MethodPost, files+"/move", "move-file", "Move or rename a file or directory", route.StatusNoStorage),
		func(ctx context.Context, in *moveInput) (*route.Out[*api.FileInfo], error) {
			return h.changeFile(ctx, in.ID, api.FileChange{FileRef: in.file(), Action: api.FileMove, To: in.To, Parents: in.Parents, Keep: in.Keep})
		})
	route.Register(r, onFile(http.MethodPost, files+"/chmod", "change-mode", "Change the mode of a file or directory"),
		func(ctx context.Context, in *chmodInput) (*route.Out[*api.FileInfo], error) {
			mode := ModeInput{in.Mode}
			return h.changeFile(ctx, in.ID, api.FileChange{FileRef: in.file(), Action: api.FileChmod, Mode: mode.mode(), Recursive: in.Recursive})
		})
	route.Register(r, onFile(http.MethodDelete, files, "remove-file", "Remove a file or directory", http.StatusPreconditionFailed), h.removeFile)
	route.Register(r, onFile(http.MethodGet, files+"/list", "list-files", "List a directory, in the order of names; what is below a directory follows it"), h.listFiles)
	route.Register(r, onFile(http.MethodGet, files+"/search", "search-files", "Search below a directory, by name, by content, or both"), h.searchFiles)

	op := onFile(http.MethodGet, files+"/watch", "watch-files", "Watch a file or directory until the client goes away")
	route.RegisterStream(r, op, map[string]*huma.Response{"200": {
		Description: http.StatusText(http.StatusOK),
		Content: map[string]*huma.MediaType{httpwire.EventType: route.EventContent(r,
			"Events `files` (FileEvents), the first one when the watch has begun, at last perhaps `error` (Problem).",
			route.EventData{httpwire.EventFiles: api.FileEvents{}, httpwire.EventError: httpwire.Problem{}})},
	}}, func(in *watchInput) error { return route.ValidSandbox(in.ID) }, h.watchFiles)
}

func (h *files) statFile(ctx context.Context, in *FileInput) (*route.Out[*api.FileInfo], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	info, err := h.svc.StatFile(ctx, in.ID, in.file())
	return route.Answer(info, err)
}

func (h *files) changeFile(ctx context.Context, ref string, c api.FileChange) (*route.Out[*api.FileInfo], error) {
	if err := route.ValidSandbox(ref); err != nil {
		return nil, err
	}
	info, err := h.svc.ChangeFile(ctx, ref, c)
	return route.Answer(info, err)
}

func (h *files) removeFile(ctx context.Context, in *removeInput) (*struct{}, error) {
	tags, err := in.tags()
	if in.noneLines != nil {
		err = api.Invalid("If-None-Match", "what is removed takes If-Match")
	}
	if err == nil {
		_, err = h.changeFile(ctx, in.ID, api.FileChange{FileRef: in.file(), Action: api.FileRemove, Recursive: in.Recursive, IfMatch: tags})
	}
	return nil, err
}

func (h *files) listFiles(ctx context.Context, in *filesInput) (*route.Out[httpwire.List[api.FileInfo]], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	after, err := base64.RawURLEncoding.DecodeString(in.PageToken)
	if err != nil {
		return nil, api.Invalid("page_token", "not a token that a list returned")
	}
	l, err := h.svc.ListFiles(ctx, in.ID, api.ListRequest{FileRef: in.file(), Depth: in.Depth, Glob: in.Glob, Limit: in.Limit, After: string(after)})
	if err != nil {
		return nil, err
	}
	return route.Answer(httpwire.List[api.FileInfo]{
		Items: route.List(l.Files), NextPageToken: base64.RawURLEncoding.EncodeToString([]byte(l.Next)),
	}, nil)
}

func (h *files) searchFiles(ctx context.Context, in *searchInput) (*route.Out[*api.SearchResult], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	if in.Name == "" && in.Content == "" {
		return nil, api.Invalid("content", "at least one of name and content must be given")
	}
	res, err := h.svc.SearchFiles(ctx, in.ID, api.SearchRequest{
		FileRef: in.file(), Glob: in.Name, Text: in.Content, Regexp: in.Regexp, IgnoreCase: in.IgnoreCase, Limit: in.Limit,
	})
	if err == nil {
		res.Matches = route.List(res.Matches)
	}
	return route.Answer(res, err)
}

func (h *files) watchFiles(w http.ResponseWriter, r *http.Request, in *watchInput) {
	events, ctx := h.Follow(w, r, true)
	defer events.Close()
	err := h.svc.WatchFiles(ctx, in.ID, api.WatchRequest{FileRef: in.file(), Recursive: in.Recursive, DebounceMS: in.DebounceMS},
		func(e api.FileEvents) error { return events.Send(httpwire.EventFiles, e) })
	if err != nil {
		h.EndFollowing(ctx, events, r, err)
	}
}
