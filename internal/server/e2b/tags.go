package e2b

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/e2b/build"
	"ramet.dev/ramet/internal/service"
)

// labels are the tags of templates. Each is a snapshot of its own, so that it stays what it is
// when the template is built again.
type labels struct{ svc service.Service }

func (l *labels) route(s *Server) {
	s.route("POST /templates/tags", "snapshot-sandbox", l.assign)
	s.route("DELETE /templates/tags", "delete-snapshot", l.remove)
	// The mux takes no pattern with tags, because aliases could be a template.
	s.route("GET /templates/{id}/{tags}", "", l.list)
	s.routes[len(s.routes)-1] = "GET /templates/{id}/tags"
}

// tagLife is how long a sandbox may live that a state is taken of.
const tagLife = time.Minute

// assign gives the state of a template under a tag other tags.
func (l *labels) assign(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	name, _, _ := strings.Cut(in.Target, ":")
	if err := build.ValidTags(name, in.Tags); err != nil {
		return err
	}
	ctx := r.Context()
	from := plain(in.Target)
	sn, err := l.svc.GetSnapshot(ctx, from)
	if err != nil {
		return api.NotFound("template", in.Target)
	}
	ttl := tagLife.Milliseconds()
	made, err := l.svc.Restore(ctx, sn.ID, api.RestoreRequest{Count: 1, Lifecycle: &api.LifecycleRequest{TTLMS: &ttl}})
	if err != nil {
		return err
	}
	if e := made.Children[0].Error; e != nil {
		return e
	}
	sandbox := made.Children[0].Sandbox.ID
	defer func() { _ = l.svc.Destroy(context.WithoutCancel(ctx), sandbox) }() // it has a ttl
	for _, tag := range in.Tags {
		if to := build.StateName(name, tag); to != from {
			if err := build.Keep(ctx, l.svc, sandbox, to); err != nil {
				return err
			}
		}
	}
	return reply(w, http.StatusCreated, map[string]any{"tags": in.Tags, "buildID": build.Of(sn)})
}

// remove removes tags. Those that there are not are an error, and then none is removed.
func (l *labels) remove(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	if err := build.ValidTags(in.Name, in.Tags); err != nil {
		return err
	}
	var ids []string
	for _, tag := range in.Tags {
		sn, err := l.svc.GetSnapshot(r.Context(), build.StateName(in.Name, tag))
		if err != nil {
			return err
		}
		ids = append(ids, sn.ID)
	}
	for _, id := range ids {
		if err := l.svc.DeleteSnapshot(r.Context(), id, api.SnapshotDeletion{Flatten: true}); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// templateTag is a tag of a template.
type templateTag struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"`
	CreatedAt time.Time `json:"createdAt"`
}

// list lists the tags of a template, the newest first.
func (l *labels) list(w http.ResponseWriter, r *http.Request) error {
	if r.PathValue("tags") != "tags" {
		return api.NotFound("route", r.Method+" "+r.URL.Path)
	}
	all, err := build.States(r.Context(), l.svc, r.PathValue("id"))
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return api.NotFound("template", r.PathValue("id"))
	}
	out := []templateTag{}
	for i := range all {
		_, tag := build.ParseState(all[i].Name)
		out = append(out, templateTag{tag, build.Of(&all[i]), all[i].CreatedAt})
	}
	slices.SortFunc(out, func(a, b templateTag) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return reply(w, http.StatusOK, out)
}
