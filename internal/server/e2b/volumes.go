package e2b

import (
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/e2b/grant"
	"ramet.dev/ramet/internal/server/front"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
)

func (s *Server) routeVolumes() {
	v := shared{s.svc, s.grants}
	s.route("POST /volumes", "create-volume", v.create)
	s.route("GET /volumes", "", v.list)
	s.route("GET /volumes/{id}", "", v.get)
	s.route("DELETE /volumes/{id}", "remove-volume", v.remove)
	s.contents("GET /volumecontent/{id}/dir", v.listDir)
	s.contents("POST /volumecontent/{id}/dir", v.makeDir)
	s.contents("GET /volumecontent/{id}/path", v.stat)
	s.contents("PATCH /volumecontent/{id}/path", v.change)
	s.contents("DELETE /volumecontent/{id}/path", v.removePath)
	s.contents("GET /volumecontent/{id}/file", v.readFile)
	s.contents("PUT /volumecontent/{id}/file", v.writeFile)
}

// contents serves a request about the files of a volume, which carries the volume's token.
func (s *Server) contents(pattern string, handle func(http.ResponseWriter, *http.Request) error) {
	s.routes = append(s.routes, pattern)
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		session, err := s.grants.Check(r.Context(), grant.Volume, id, token)
		if err != nil {
			writeError(w, err)
			return
		}
		caller := access.Itself(session.Caller.Tenant, id)
		caller.Token = session.Caller.Token
		r, end := front.During(r, session.As(caller))
		defer end()
		ctx := r.Context()
		if r.Method == http.MethodPut {
			front.Body(w, r, 0) // the volume has a size
		} else {
			front.Body(w, r, maxBody)
		}
		if r.Method != http.MethodGet {
			var note *audit.Note
			ctx, note = audit.Begin(ctx, "change-volume", "")
			defer func() { s.svc.AppendAudit(note.Entry()) }()
		}
		if err := handle(w, r.WithContext(ctx)); err != nil {
			audit.Of(ctx).Failed(api.CodeOf(err))
			writeError(w, err)
		}
	})
}

// shared are the volumes of a tenant, as clients of E2B see them.
type shared struct {
	svc    service.Volumes
	grants *grant.Grants
}

type volume struct {
	VolumeID string `json:"volumeID"`
	Name     string `json:"name"`
	Token    string `json:"token,omitempty"`
}

// describe returns a volume with the token for its files, if the caller may have that.
func (v shared) describe(r *http.Request, d *api.Volume) volume {
	return volume{d.ID, d.Name, v.grants.Token(front.SessionOf(r.Context()), grant.Volume, d.ID)}
}

func (v shared) create(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name string `json:"name"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	made, err := v.svc.CreateVolume(r.Context(), api.VolumeRequest{Name: in.Name})
	if err != nil {
		return err
	}
	return reply(w, http.StatusCreated, v.describe(r, made))
}

func (v shared) list(w http.ResponseWriter, r *http.Request) error {
	all, err := v.svc.Volumes(r.Context())
	if err != nil {
		return err
	}
	list := []volume{}
	for _, d := range all {
		list = append(list, volume{VolumeID: d.ID, Name: d.Name})
	}
	return reply(w, http.StatusOK, list)
}

func (v shared) get(w http.ResponseWriter, r *http.Request) error {
	d, err := v.svc.GetVolume(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, v.describe(r, d))
}

func (v shared) remove(w http.ResponseWriter, r *http.Request) error {
	if err := v.svc.RemoveVolume(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// volumeEntry is a file of a volume.
type volumeEntry struct {
	Name   string    `json:"name"`
	Type   string    `json:"type"`
	Path   string    `json:"path"`
	Size   int64     `json:"size"`
	Mode   uint32    `json:"mode"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	ATime  time.Time `json:"atime"`
	MTime  time.Time `json:"mtime"`
	CTime  time.Time `json:"ctime"`
	Target string    `json:"target,omitempty"`
}

func describeEntry(e *api.VolumeEntry) volumeEntry {
	kind := map[string]string{"file": "file", "dir": "directory", "symlink": "symlink"}[e.Type]
	if kind == "" {
		kind = "unknown"
	}
	return volumeEntry{path.Base(e.Path), kind, e.Path, e.Size, e.Mode, e.UID, e.GID, e.ATime, e.MTime, e.CTime, e.Target}
}

// answerEntry answers with a file of a volume.
func answerEntry(w http.ResponseWriter, status int, e *api.VolumeEntry, err error) error {
	if err != nil {
		return err
	}
	return reply(w, status, describeEntry(e))
}

// volumePath returns the volume and the path of a request.
func volumePath(r *http.Request) (id, p string) {
	return r.PathValue("id"), r.URL.Query().Get("path")
}

// fileOptions reads the owner and the mode of what is to be made.
func fileOptions(r *http.Request) (o api.VolumeFileOptions, err error) {
	q := r.URL.Query()
	for name, to := range map[string]**uint32{"uid": &o.UID, "gid": &o.GID, "mode": &o.Mode} {
		if text := q.Get(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 32)
			if err != nil || name == "mode" && n > 0o7777 {
				return o, api.Invalid(name, "%q is no number that it can have", text)
			}
			v := uint32(n)
			*to = &v
		}
	}
	o.Parents = q.Get("force") == "true" || q.Get("force") == "True"
	return o, nil
}

func (v shared) listDir(w http.ResponseWriter, r *http.Request) error {
	id, p := volumePath(r)
	depth := 1
	if text := r.URL.Query().Get("depth"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return api.Invalid("depth", "%q is no number", text)
		}
		depth = n
	}
	all, err := v.svc.VolumeList(r.Context(), id, p, depth)
	if err != nil {
		return err
	}
	list := []volumeEntry{}
	for i := range all {
		list = append(list, describeEntry(&all[i]))
	}
	return reply(w, http.StatusOK, list)
}

func (v shared) makeDir(w http.ResponseWriter, r *http.Request) error {
	id, p := volumePath(r)
	o, err := fileOptions(r)
	if err != nil {
		return err
	}
	e, err := v.svc.VolumeMkdir(r.Context(), id, p, o)
	return answerEntry(w, http.StatusCreated, e, err)
}

func (v shared) stat(w http.ResponseWriter, r *http.Request) error {
	id, p := volumePath(r)
	e, err := v.svc.VolumeStat(r.Context(), id, p)
	return answerEntry(w, http.StatusOK, e, err)
}

func (v shared) change(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		UID  *uint32 `json:"uid"`
		GID  *uint32 `json:"gid"`
		Mode *uint32 `json:"mode"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	if in.Mode != nil && *in.Mode > 0o7777 {
		return api.Invalid("mode", "%d has other bits than those of permissions", *in.Mode)
	}
	id, p := volumePath(r)
	e, err := v.svc.VolumeChange(r.Context(), id, p, api.VolumeFileOptions{UID: in.UID, GID: in.GID, Mode: in.Mode})
	return answerEntry(w, http.StatusOK, e, err)
}

func (v shared) removePath(w http.ResponseWriter, r *http.Request) error {
	id, p := volumePath(r)
	if err := v.svc.VolumeRemove(r.Context(), id, p); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (v shared) readFile(w http.ResponseWriter, r *http.Request) error {
	id, p := volumePath(r)
	f, e, err := v.svc.VolumeRead(r.Context(), id, p)
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(e.Size, 10))
	_, _ = io.CopyN(w, f, e.Size) // the client is gone, or sees by the length that something is missing
	return nil
}

func (v shared) writeFile(w http.ResponseWriter, r *http.Request) error {
	id, p := volumePath(r)
	o, err := fileOptions(r)
	if err != nil {
		return err
	}
	e, err := v.svc.VolumeWrite(r.Context(), id, p, r.Body, o)
	return answerEntry(w, http.StatusCreated, e, err)
}

// volumeMount is a volume of a new sandbox.
type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

func mountsOf(list []volumeMount) (mounts []api.VolumeMount) {
	for _, m := range list {
		mounts = append(mounts, api.VolumeMount{Volume: m.Name, Path: m.Path})
	}
	return mounts
}
