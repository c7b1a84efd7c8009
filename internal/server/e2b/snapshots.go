package e2b

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/e2b/build"
)

func (s *Server) routeSnapshots() {
	s.route("POST /sandboxes/{id}/snapshots", "snapshot-sandbox", s.snapshot)
	s.route("GET /snapshots", "", s.snapshots)
}

// snapshotInfo is a snapshot as clients know it: a template of that name.
type snapshotInfo struct {
	ID    string   `json:"snapshotID"`
	Names []string `json:"names"`
}

func describeSnapshot(sn *api.Snapshot) snapshotInfo {
	name := tagged(sn.Name)
	out := snapshotInfo{ID: cmp.Or(name, sn.ID), Names: []string{}}
	if name != "" {
		out.Names = append(out.Names, name)
	}
	return out
}

// plain returns the name of the snapshot, or of the image, that clients call NAME or NAME:TAG.
func plain(name string) string {
	template, tag, _ := strings.Cut(name, ":")
	return build.StateName(template, tag)
}

// tagged is the inverse of plain.
func tagged(name string) string {
	template, tag := build.ParseState(name)
	if tag == build.DefaultTag {
		return template
	}
	return template + ":" + tag
}

func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name   string `json:"name"`
		Memory *bool  `json:"memory"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	if in.Memory != nil && !*in.Memory {
		return api.Errorf(api.CodeUnsupported, "a snapshot keeps the memory: 'ramet commit' makes an image of files alone")
	}
	sn, err := s.svc.Snapshot(r.Context(), inner(r.PathValue("id")), api.SnapshotRequest{Name: plain(in.Name)})
	if err != nil {
		return err
	}
	return reply(w, http.StatusCreated, describeSnapshot(sn))
}

// snapshots returns a page of the snapshots that clients have made, the newest first: those of templates are not among
// them.
func (s *Server) snapshots(w http.ResponseWriter, r *http.Request) error {
	all, err := s.svc.Snapshots(r.Context())
	if err != nil {
		return err
	}
	out := []snapshotInfo{}
	q := r.URL.Query()
	limit, err := limitOf(q)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b api.Snapshot) int { return strings.Compare(age(b.CreatedAt, b.ID), age(a.CreatedAt, a.ID)) })
	after, err := base64.RawURLEncoding.DecodeString(q.Get("nextToken"))
	if err != nil {
		return api.Invalid("nextToken", "it is not one of this server")
	}
	of, name, last := q.Get("sandboxID"), q.Get("name"), ""
	for i := range all {
		sn := &all[i]
		at := age(sn.CreatedAt, sn.ID)
		if len(after) > 0 && at >= string(after) || of != "" && sn.Sandbox != inner(of) || name != "" && sn.Name != plain(name) && sn.ID != name || sn.Template != "" {
			continue
		}
		if len(out) == limit {
			w.Header().Set("x-next-token", base64.RawURLEncoding.EncodeToString([]byte(last)))
			break
		}
		out, last = append(out, describeSnapshot(sn)), at
	}
	return reply(w, http.StatusOK, out)
}
