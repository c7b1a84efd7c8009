package e2b

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/e2b/build"
	"ramet.dev/ramet/internal/server/e2b/egress"
	"ramet.dev/ramet/internal/server/e2b/envd"
	"ramet.dev/ramet/internal/server/e2b/grant"
	"ramet.dev/ramet/internal/server/front"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// builders are requests for builds of templates.
type builders struct {
	svc    service.Service
	grants *grant.Grants
	builds *build.Builds
}

func (b *builders) route(s *Server) {
	s.route("POST /v3/templates", "snapshot-sandbox", b.begin)
	s.routeFor(api.ScopeAdmin, "GET /templates/{id}/files/{hash}", "", b.askUpload)
	s.route("POST /v2/templates/{id}/builds/{build}", "snapshot-sandbox", b.start)
	s.route("GET /templates/{id}/builds/{build}/status", "", b.status)
	s.route("GET /templates/aliases/{alias}", "", b.alias)
	(&labels{b.svc}).route(s)
	const upload = "PUT /templates/{id}/files/{hash}"
	s.routes = append(s.routes, upload)
	s.mux.HandleFunc(upload, b.upload)
}

// base returns what a build begins with.
func (t *templates) base(ctx context.Context, p *build.Plan) (from, user string, network *api.NetworkRequest, err error) {
	network = egress.Closed(&api.NetworkRequest{Profile: "open"})
	switch name, _, _ := strings.Cut(p.FromImage, ":"); {
	case p.FromTemplate != "":
		from, user, err = t.find(ctx, p.FromTemplate)
	case name == "" || name == "e2bdev/base":
		from, user, err = t.find(ctx, templateBase)
	case name == "e2bdev/code-interpreter":
		from, user, err = t.find(ctx, templateCode)
	default:
		from = p.FromImage
	}
	return from, user, network, err
}

// begin begins a build of a template, whose id is its name.
func (b *builders) begin(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name  string   `json:"name"`
		Alias string   `json:"alias"`
		Tags  []string `json:"tags"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	name, tag, _ := strings.Cut(cmp.Or(in.Name, in.Alias), ":")
	if err := api.ValidName("name", name); err != nil {
		return err
	}
	tags := append([]string{cmp.Or(tag, build.DefaultTag)}, in.Tags...)
	slices.Sort(tags)
	tags = slices.Compact(tags)
	if err := build.ValidTags(name, tags); err != nil {
		return err
	}
	if _, ours := recipes[name]; ours || strings.HasPrefix(name, warmPrefix) {
		return api.Invalid("name", "%q is a template of the server", name)
	}
	id, err := b.builds.Begin(r.Context(), name, tags)
	if err != nil {
		return err
	}
	return reply(w, http.StatusAccepted, map[string]any{
		"templateID": name, "buildID": id, "public": false, "names": []string{name}, "tags": tags, "aliases": []string{name},
	})
}

// askUpload says where files of a build go, unless they are there.
func (b *builders) askUpload(w http.ResponseWriter, r *http.Request) error {
	tenant, hash := access.From(r.Context()).Tenant, r.PathValue("hash")
	has, err := b.builds.Has(tenant, hash)
	if err != nil {
		return err
	}
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" { // or a proxy with TLS has passed it on
		scheme = "https"
	}
	to := url.URL{Scheme: scheme, Host: r.Host, Path: r.URL.Path, RawQuery: b.grants.Upload(front.SessionOf(r.Context()), hash, time.Now()).Encode()}
	return reply(w, http.StatusCreated, map[string]any{"present": has, "url": to.String()})
}

// upload keeps files of a build. The address has the right to do so.
func (b *builders) upload(w http.ResponseWriter, r *http.Request) {
	hash := r.PathValue("hash")
	session, err := b.grants.CheckUpload(r.Context(), r.URL.Query(), hash, time.Now())
	if err == nil {
		front.Body(w, r, 0) // Keep counts
		err = b.builds.Keep(session.Caller.Tenant, hash, r.Body)
	}
	if err != nil {
		envd.WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (b *builders) start(w http.ResponseWriter, r *http.Request) error {
	var plan build.Plan
	if err := read(r, &plan); err != nil {
		return err
	}
	if err := b.builds.Start(r.Context(), r.PathValue("id"), r.PathValue("build"), &plan); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (b *builders) status(w http.ResponseWriter, r *http.Request) error {
	from := 0
	if text := r.URL.Query().Get("logsOffset"); text != "" {
		var err error
		if from, err = strconv.Atoi(text); err != nil || from < 0 {
			return api.Invalid("logsOffset", "%.20q is not a number from 0 on", text)
		}
	}
	status, err := b.builds.Status(r.Context(), r.PathValue("id"), r.PathValue("build"), from)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, status)
}

// alias answers whether there is a template of a name.
func (b *builders) alias(w http.ResponseWriter, r *http.Request) error {
	alias := r.PathValue("alias")
	name := plain(alias)
	if _, ours := recipes[name]; !ours {
		if _, err := b.svc.GetSnapshot(r.Context(), name); err != nil {
			if _, err := b.svc.GetImage(r.Context(), name); err != nil {
				return unknown("template", alias, err)
			}
		}
	}
	return reply(w, http.StatusOK, map[string]any{"templateID": strings.TrimSuffix(alias, ":"+build.DefaultTag), "public": false})
}
