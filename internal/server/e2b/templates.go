package e2b

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/e2b/build"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// Names of templates that are built where they are missing.
const (
	templateBase = "base"
	templateCode = "code-interpreter-v1"
	// warmPrefix begins the marks, and the names, of the snapshots that sandboxes of these templates are restored from.
	warmPrefix = "e2b-"
)

// template is what a template is made of.
type template struct {
	packages []string
	// warm is code that runs before the snapshot, as the user, so that each sandbox has it.
	warm string
}

var common = []string{"bash", "ca-certificates", "curl", "git", "iproute2", "passwd", "procps", "python-is-python3", "python3", "python3-pip", "sudo", "tzdata"}

var recipes = map[string]template{
	templateBase: {packages: common},
	templateCode: {
		packages: append([]string{"nodejs", "python3-ipython", "python3-matplotlib", "python3-numpy", "python3-pandas", "python3-sklearn"}, common...),
		warm:     "import IPython, numpy, pandas, matplotlib.pyplot\ndel IPython, numpy, pandas, matplotlib",
	},
}

// snapshot returns the name of the warm snapshot: another one when what it is made of is.
func (t template) snapshot(name string) string {
	sum := sha256.Sum256(fmt.Append(nil, t.packages, t.warm, prepare))
	return fmt.Sprintf("%s%s-%x", warmPrefix, name, sum[:4])
}

// prepare makes the user that clients of E2B work as. Their commands run in login shells: the profile of
// Debian starts a program to learn what bash knows. What they install with pip is for all, as there.
const prepare = `set -e
useradd -m -u 1000 -s /bin/bash user
printf 'user ALL=(ALL) NOPASSWD:ALL\n' > /etc/sudoers.d/user
chmod 440 /etc/sudoers.d/user
mkdir -p /code && chown user:user /code
sed -i 's/"$(id -u)"/"${EUID:-$(id -u)}"/' /etc/profile
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED`

const user = "user"

// templates are made where they are missing.
type templates struct {
	svc      service.Service
	log      *slog.Logger
	building singleflight.Group
}

func (s *Server) routeTemplates() {
	s.route("GET /templates", "", s.listTemplates)
	s.route("GET /v2/templates", "", s.listTemplates)
	s.route("DELETE /templates/{id}", "delete-snapshot", s.deleteTemplate)
}

// find returns what sandboxes of a template are made of: its warm snapshot, or else the image or
// snapshot of that name. user is the user of their commands, if they have one of their own.
func (s *templates) find(ctx context.Context, id string) (from, defaultUser string, err error) {
	name := plain(id)
	if name == "" {
		name = templateBase
	}
	t, ours := recipes[name]
	if !ours {
		return name, s.userOf(ctx, name), nil
	}
	warm := t.snapshot(name)
	if sn, err := s.made(ctx, warm); err != nil || sn != "" {
		return sn, user, err
	}
	caller := access.From(ctx)
	if err := caller.MayMakeTree("a template"); err != nil {
		return "", "", err
	}
	// One caller makes it, and others wait. It is made also if its first caller leaves.
	made, err, _ := s.building.Do(caller.Tenant+"\x00"+name, func() (any, error) {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), buildTimeout)
		defer cancel()
		return s.build(own, name, warm, t)
	})
	from, _ = made.(string)
	return from, user, err
}

// made returns the id of the ready snapshot that the server made as a template; empty if there is none. A snapshot is
// known by its mark, which no request can set, and not by its name: any caller may give a snapshot a free name.
func (s *templates) made(ctx context.Context, warm string) (string, error) {
	is := func(sn *api.Snapshot) bool { return sn.Template == warm && sn.State == api.SnapshotReady }
	if sn, err := s.svc.GetSnapshot(ctx, warm); err == nil && is(sn) {
		return sn.ID, nil
	}
	all, err := s.svc.Snapshots(ctx)
	if err != nil {
		return "", err
	}
	for i := range all {
		if is(&all[i]) {
			return all[i].ID, nil
		}
	}
	return "", nil
}

// buildTimeout bounds the making of a template, packages included.
const buildTimeout = 15 * time.Minute

// userOf returns the user that a snapshot's sandbox had.
func (s *templates) userOf(ctx context.Context, ref string) string {
	sn, err := s.svc.GetSnapshot(ctx, ref)
	if err != nil {
		return ""
	}
	return sn.Labels()[metaUser]
}

// build makes the image of a template and its warm snapshot, and returns the id of the snapshot.
func (s *templates) build(ctx context.Context, name, warm string, t template) (string, error) {
	if id, err := s.made(ctx, warm); err != nil || id != "" {
		return id, err // another request was quicker
	}
	s.log.Info("a template of E2B is made", "template", name)
	img, err := s.svc.CreateImage(ctx, api.ImageRequest{Name: warm + "-files", Build: &api.ImageBuild{From: "debian", Include: t.packages}, IfMissing: true}, func(api.Progress) {})
	if err != nil {
		return "", fmt.Errorf("make the image of template %s: %w", name, err)
	}
	ttl := int64(buildTimeout / time.Millisecond)
	sb, err := s.svc.Create(ctx, api.CreateRequest{Image: img.ID, Metadata: map[string]string{metaTemplate: name, metaUser: user}, Lifecycle: &api.LifecycleRequest{TTLMS: &ttl}})
	if err != nil {
		return "", fmt.Errorf("make template %s: %w", name, err)
	}
	defer func() { _ = s.svc.Destroy(context.WithoutCancel(ctx), sb.ID) }() // it has a ttl
	var out bytes.Buffer
	res, err := s.svc.Exec(ctx, sb.ID, api.ExecRequest{Shell: prepare}, api.ExecIO{Stdout: &out, Stderr: &out})
	if err == nil && !res.OK {
		err = api.Errorf(api.CodeInternal, "%s", strings.TrimSpace(out.String()))
	}
	if err == nil && t.warm != "" {
		err = s.warm(ctx, sb.ID, t.warm)
	}
	if err != nil {
		return "", fmt.Errorf("make template %s: %w", name, err)
	}
	sn, err := s.svc.Snapshot(ctx, sb.ID, api.SnapshotRequest{Name: warm, Template: warm})
	if api.CodeOf(err) == api.CodeNameTaken { // by a caller: the template needs no name
		sn, err = s.svc.Snapshot(ctx, sb.ID, api.SnapshotRequest{Template: warm})
	}
	if err != nil {
		return "", fmt.Errorf("make template %s: %w", name, err)
	}
	return sn.ID, nil
}

// warm starts the interpreter that cells run in.
func (s *templates) warm(ctx context.Context, id, code string) error {
	const lang = "python"
	if _, err := s.svc.CreateContext(ctx, id, api.ContextRequest{Language: lang, Name: lang, User: user, Cwd: "/home/" + user}); err != nil {
		return err
	}
	res, err := s.svc.RunCode(ctx, id, api.RunCodeRequest{Code: code, Context: lang, Silent: true}, api.RunIO{})
	if err == nil && res.Error != nil {
		err = api.Errorf(api.CodeInternal, "%s: %s", res.Error.Name, res.Error.Value)
	}
	return err
}

// listTemplates lists the templates that can be built, and images and snapshots with a name.
func (s *Server) listTemplates(w http.ResponseWriter, r *http.Request) error {
	type template struct {
		name    string
		created time.Time
		size    int64
	}
	all := []template{{name: templateBase}, {name: templateCode}}
	images, err := s.svc.Images(r.Context())
	if err != nil {
		return err
	}
	for i := range images {
		for _, name := range images[i].Names {
			if strings.HasPrefix(name, warmPrefix) {
				continue // the files of a template
			}
			all = append(all, template{name, images[i].CreatedAt, images[i].SizeBytes})
		}
	}
	snapshots, err := s.svc.Snapshots(r.Context())
	if err != nil {
		return err
	}
	for i := range snapshots {
		if snapshots[i].Template != "" {
			continue // listed above
		}
		all = append(all, template{snapshots[i].Name, snapshots[i].CreatedAt, snapshots[i].SizeBytes})
	}
	out := []map[string]any{}
	for _, t := range all {
		name := t.name
		if name == "" || tagged(name) != name { // a tag is no template of its own
			continue
		}
		out = append(out, map[string]any{
			"templateID": name, "buildID": name, "names": []string{name}, "aliases": []string{name}, "public": false, "cpuCount": 0, "memoryMB": 0, "diskSizeMB": t.size >> 20,
			"createdAt": t.created, "updatedAt": t.created, "lastSpawnedAt": nil, "spawnCount": 0, "buildCount": 1, "envdVersion": envdVersion, "createdBy": nil, "buildStatus": "ready",
		})
	}
	return reply(w, http.StatusOK, out)
}

// deleteTemplate deletes a snapshot, and a template with all its tags.
func (s *Server) deleteTemplate(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("id")
	states, err := build.States(r.Context(), s.svc, name)
	if err != nil {
		return err
	}
	for i := range states {
		if err := s.svc.DeleteSnapshot(r.Context(), states[i].ID, api.SnapshotDeletion{Flatten: true}); err != nil {
			return err
		}
	}
	if len(states) == 0 { // it is a tag or an id
		err = unknown("template", name, s.svc.DeleteSnapshot(r.Context(), plain(name), api.SnapshotDeletion{Flatten: true}))
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
