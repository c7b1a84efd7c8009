package e2b

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/e2b/build"
	"ramet.dev/ramet/internal/server/e2b/egress"
	"ramet.dev/ramet/internal/server/e2b/grant"
	"ramet.dev/ramet/internal/server/front"
)

// Metadata of sandboxes that say what clients of E2B have asked for.
const (
	metaPrefix    = "e2b/"
	metaTemplate  = metaPrefix + "template"
	metaEnd       = metaPrefix + "end" // when it is destroyed or paused
	metaAutoPause = metaPrefix + "auto-pause"
	metaPublic    = metaPrefix + "public" // its ports need no token
	metaUser      = build.MetaUser        // of commands, unless they name one
	metaDir       = build.MetaDir         // where they start
	metaInternet  = metaPrefix + "internet"
	metaMask      = metaPrefix + "mask-request-host" // what its servers see as the host
)

func (s *Server) routeSandboxes() {
	s.route("POST /sandboxes", "create-sandbox", s.create)
	s.route("POST /v2/sandboxes", "create-sandbox", s.create)
	s.route("GET /sandboxes", "", s.list)
	s.route("GET /v2/sandboxes", "", s.list)
	s.route("GET /sandboxes/{id}", "", s.get)
	s.route("DELETE /sandboxes/{id}", "destroy-sandbox", s.kill)
	s.route("POST /sandboxes/{id}/fork", "fork-sandbox", s.fork)
	s.route("PUT /sandboxes/{id}/network", "set-network", s.setNetwork)
	s.route("GET /sandboxes/{id}/metrics", "", s.metrics)
	s.route("GET /sandboxes/{id}/logs", "", s.logs)
	s.route("GET /v2/sandboxes/{id}/logs", "", s.logs)
}

// newSandbox is a request for a sandbox.
type newSandbox struct {
	TemplateID string                  `json:"templateID"`
	Timeout    *int                    `json:"timeout"`
	AutoPause  bool                    `json:"autoPause"`
	AutoMemory *bool                   `json:"autoPauseMemory"`
	AutoResume *struct{ Enabled bool } `json:"autoResume"`
	Internet   *bool                   `json:"allow_internet_access"`
	Network    *egress.Network         `json:"network"`
	Metadata   map[string]string       `json:"metadata"`
	EnvVars    map[string]string       `json:"envVars"`
	IAM        any                     `json:"iam"`
	Volumes    []volumeMount           `json:"volumeMounts"`
}

// unsupported returns an error if the request asks for what this server has not: nothing is left out in silence.
func (n *newSandbox) unsupported() error {
	switch {
	case n.IAM != nil:
		return api.Errorf(api.CodeUnsupported, "iam: sandboxes have no workload identity")
	case n.AutoPause && n.AutoMemory != nil && !*n.AutoMemory:
		return api.Errorf(api.CodeUnsupported, "autoPauseMemory: a pause keeps the memory")
	}
	for k := range n.Metadata {
		if strings.HasPrefix(k, metaPrefix) {
			return api.Invalid("metadata", "keys that begin with %s are the server's", metaPrefix)
		}
	}
	return nil
}

// made is a sandbox as the answer to a create, connect or fork.
type made struct {
	TemplateID   string `json:"templateID"`
	SandboxID    string `json:"sandboxID"`
	ClientID     string `json:"clientID"`
	EnvdVersion  string `json:"envdVersion"`
	AccessToken  string `json:"envdAccessToken"`
	TrafficToken string `json:"trafficAccessToken,omitempty"`
	Domain       string `json:"domain,omitempty"`
	Alias        string `json:"alias,omitempty"`
}

// access returns what a client needs to reach a sandbox.
func (s *Server) access(r *http.Request, sb *api.Sandbox) made {
	token := s.grants.Token(front.SessionOf(r.Context()), grant.Access, sb.ID)
	m := made{
		TemplateID: templateOf(sb), SandboxID: outer(sb.ID), ClientID: "ramet", EnvdVersion: envdVersion,
		AccessToken: token, Domain: s.domain, Alias: templateOf(sb),
	}
	if sb.Labels()[metaPublic] != "true" {
		m.TrafficToken = token
	}
	return m
}

func templateOf(sb *api.Sandbox) string {
	return cmp.Or(sb.Labels()[metaTemplate], sb.ImageName, sb.Image)
}

// create makes a sandbox of a template: a restore of the template's warm snapshot.
func (s *Server) create(w http.ResponseWriter, r *http.Request) error {
	var in newSandbox
	if err := read(r, &in); err != nil {
		return err
	}
	after, err := lifetime(in.Timeout)
	if err == nil {
		err = in.unsupported()
	}
	if err != nil {
		return err
	}
	from, user, err := s.templates.find(r.Context(), in.TemplateID)
	if err != nil {
		return err
	}
	net, err := in.Network.Request(in.Internet)
	if err != nil {
		return err
	}
	end := time.Now().Add(after)
	metadata := map[string]string{
		metaTemplate: cmp.Or(in.TemplateID, templateBase), metaEnd: end.UTC().Format(time.RFC3339Nano), metaAutoPause: strconv.FormatBool(in.AutoPause),
		metaPublic: strconv.FormatBool(in.Network != nil && in.Network.Public != nil && *in.Network.Public), metaUser: user,
	}
	if in.Internet != nil {
		metadata[metaInternet] = strconv.FormatBool(*in.Internet)
	}
	if in.Network != nil && in.Network.Mask != "" {
		metadata[metaMask] = in.Network.Mask
	}
	for k, v := range in.Metadata {
		metadata[k] = v
	}
	ttl, wakes := max(1, after.Milliseconds()), in.AutoResume != nil && in.AutoResume.Enabled
	if in.AutoPause {
		ttl = 0
	}
	sb, err := s.svc.Create(r.Context(), api.CreateRequest{
		Image: from, Env: in.EnvVars, Metadata: metadata, Network: net, Volumes: mountsOf(in.Volumes), Lifecycle: &api.LifecycleRequest{TTLMS: &ttl, AutoWake: &wakes},
	})
	if err != nil {
		return err
	}
	if in.AutoPause {
		s.pauses.at(sb.ID, end)
	}
	if err := s.inside.cells.AddEnv(r.Context(), sb.ID, in.EnvVars); err != nil {
		_ = s.svc.Destroy(context.WithoutCancel(r.Context()), sb.ID) // else its ttl does
		return fmt.Errorf("give the interpreters their variables: %w", err)
	}
	return reply(w, http.StatusCreated, s.access(r, sb))
}

func (s *Server) kill(w http.ResponseWriter, r *http.Request) error {
	id := inner(r.PathValue("id"))
	if err := s.svc.Destroy(r.Context(), id); err != nil {
		return err
	}
	s.pauses.drop(id)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// described is a sandbox in lists and by itself.
type described struct {
	TemplateID  string            `json:"templateID"`
	Alias       string            `json:"alias,omitempty"`
	SandboxID   string            `json:"sandboxID"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskSizeMB  int64             `json:"diskSizeMB"`
	State       string            `json:"state"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata,omitempty"`

	AccessToken string     `json:"envdAccessToken,omitempty"`
	Domain      string     `json:"domain,omitempty"`
	Internet    *bool      `json:"allowInternetAccess,omitempty"`
	Lifecycle   *lifecycle `json:"lifecycle,omitempty"`

	Volumes []volumeMount `json:"volumeMounts,omitempty"`
}

type lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

// states are those of clients for ours. Sandboxes in other states are not shown.
var states = map[api.State]string{
	api.StateCreating: "running", api.StateRunning: "running", api.StatePaused: "paused", api.StateHibernated: "paused",
}

// endOf returns when a sandbox ends or is paused; in ten years if never.
func endOf(sb *api.Sandbox) time.Time {
	if at, err := time.Parse(time.RFC3339Nano, sb.Labels()[metaEnd]); err == nil {
		return at
	}
	if sb.Lifecycle != nil && sb.Lifecycle.ExpiresAt != nil {
		return *sb.Lifecycle.ExpiresAt
	}
	return sb.CreatedAt.AddDate(10, 0, 0)
}

func (m machine) describe(sb *api.Sandbox) described {
	d := described{
		TemplateID: templateOf(sb), Alias: templateOf(sb), SandboxID: outer(sb.ID), ClientID: "ramet", StartedAt: sb.CreatedAt, EndAt: endOf(sb),
		CPUCount: int(math.Ceil(sb.Limits.CPUs)), MemoryMB: cmp.Or(sb.Limits.MemoryMiB, m.memory), DiskSizeMB: cmp.Or(sb.Limits.DiskMiB, m.disk),
		State: states[sb.State], EnvdVersion: envdVersion, Metadata: map[string]string{},
	}
	for _, m := range sb.Volumes {
		d.Volumes = append(d.Volumes, volumeMount{m.Name, m.Path})
	}
	if d.CPUCount == 0 {
		d.CPUCount = runtime.NumCPU()
	}
	for k, v := range sb.Metadata {
		if !strings.HasPrefix(k, metaPrefix) {
			d.Metadata[k] = v
		}
	}
	return d
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) error {
	sb, err := find(r.Context(), s.svc, inner(r.PathValue("id")))
	if err != nil {
		return err
	}
	if states[sb.State] == "" {
		return api.NotFound("sandbox", outer(sb.ID))
	}
	d := s.machine.describe(sb)
	d.AccessToken, d.Domain = s.grants.Token(front.SessionOf(r.Context()), grant.Access, sb.ID), s.domain
	d.Lifecycle = &lifecycle{OnTimeout: "kill", AutoResume: sb.Lifecycle != nil && sb.Lifecycle.AutoWake}
	if sb.Labels()[metaAutoPause] == "true" {
		d.Lifecycle.OnTimeout = "pause"
	}
	if v, err := strconv.ParseBool(sb.Labels()[metaInternet]); err == nil {
		d.Internet = &v
	}
	return reply(w, http.StatusOK, d)
}

const (
	defaultPage = 100
	maxPage     = 1000
)

// list returns a page of sandboxes, the newest first unless the query says otherwise.
func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	want, err := url.ParseQuery(q.Get("metadata"))
	if err != nil {
		return api.Invalid("metadata", "it is not key=value&key=value: %v", err)
	}
	filter := api.ListFilter{Metadata: map[string]string{}}
	for k := range want {
		filter.Metadata[k] = want.Get(k)
	}
	limit, err := limitOf(q)
	if err != nil {
		return err
	}
	all, err := s.svc.List(r.Context(), filter)
	if err != nil {
		return err
	}
	shown := wanted(all, q)
	descending := q.Get("order") != "asc"
	slices.SortFunc(shown, func(a, b *api.Sandbox) int {
		order := strings.Compare(place(a), place(b))
		if descending {
			return -order
		}
		return order
	})
	if token := q.Get("nextToken"); token != "" {
		after, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			return api.Invalid("nextToken", "it is not one of this server")
		}
		shown = slices.DeleteFunc(shown, func(sb *api.Sandbox) bool {
			order := strings.Compare(place(sb), string(after))
			return order == 0 || (order > 0) == descending
		})
	}
	if len(shown) > limit {
		shown = shown[:limit]
		w.Header().Set("x-next-token", base64.RawURLEncoding.EncodeToString([]byte(place(shown[limit-1]))))
	}
	out := []described{}
	for _, sb := range shown {
		out = append(out, s.machine.describe(sb))
	}
	return reply(w, http.StatusOK, out)
}

// limitOf returns how many entries a page has.
func limitOf(q url.Values) (int, error) {
	text := q.Get("limit")
	if text == "" {
		return defaultPage, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > maxPage {
		return 0, api.Invalid("limit", "%.20q is not a number from 1 to %d", text, maxPage)
	}
	return limit, nil
}

// place orders sandboxes by their age.
func place(sb *api.Sandbox) string { return age(sb.CreatedAt, sb.ID) }

// age is a text that orders things by when they were made.
func age(created time.Time, id string) string {
	return created.UTC().Format("2006-01-02T15:04:05.000000000Z") + id
}

// wanted returns the sandboxes that a query selects.
func wanted(all []api.Sandbox, q url.Values) []*api.Sandbox {
	var in []string
	for _, v := range q["state"] {
		in = append(in, strings.Split(v, ",")...)
	}
	since, _ := time.Parse(time.RFC3339Nano, q.Get("startedAfter"))
	var out []*api.Sandbox
	for i := range all {
		sb := &all[i]
		state := states[sb.State]
		if state == "" || len(in) > 0 && !slices.Contains(in, state) || sb.CreatedAt.Before(since) || q.Has("template") && templateOf(sb) != q.Get("template") {
			continue
		}
		out = append(out, sb)
	}
	return out
}

// fork makes children of a running sandbox, which keep its connections to it.
func (s *Server) fork(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Timeout *int `json:"timeout"`
		Count   *int `json:"count"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	after, err := lifetime(in.Timeout)
	if err != nil {
		return err
	}
	sb, err := find(r.Context(), s.svc, inner(r.PathValue("id")))
	if err != nil {
		return err
	}
	end := time.Now().Add(after)
	pauses := sb.Labels()[metaAutoPause] == "true"
	ttl := max(1, after.Milliseconds())
	if pauses {
		ttl = 0
	}
	req := api.ForkRequest{Count: 1, Metadata: map[string]string{metaEnd: end.UTC().Format(time.RFC3339Nano)}, Lifecycle: &api.LifecycleRequest{TTLMS: &ttl}}
	if in.Count != nil {
		req.Count = *in.Count
	}
	if req.Count < 1 || req.Count > 1000 {
		return api.Invalid("count", "%d is not from 1 to 1000", req.Count)
	}
	forked, err := s.svc.Fork(r.Context(), sb.ID, req)
	if err != nil {
		return err
	}
	out := []map[string]any{}
	for _, c := range forked.Children {
		if c.Error != nil {
			out = append(out, map[string]any{"error": map[string]any{"code": http.StatusInternalServerError, "message": c.Error.Error()}})
			continue
		}
		if pauses {
			s.pauses.at(c.Sandbox.ID, end)
		}
		out = append(out, map[string]any{"sandbox": s.access(r, c.Sandbox)})
	}
	return reply(w, http.StatusCreated, out)
}

// maxLogs bounds the lines of an answer.
const maxLogs = 1000

// logs returns what the processes of a sandbox have written, as far as it is kept.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	type line struct {
		Timestamp time.Time         `json:"timestamp"`
		Message   string            `json:"message"`
		Level     string            `json:"level"`
		Fields    map[string]string `json:"fields"`
	}
	out := []line{}
	err := s.svc.Logs(r.Context(), inner(r.PathValue("id")), false, func() {}, func(p api.LogPiece) error {
		if p.Read == nil && len(p.Chunk.Data) > 0 {
			out = append(out, line{p.Chunk.Time, string(p.Chunk.Data), "info", map[string]string{"pid": strconv.Itoa(p.PID)}})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if over := len(out) - maxLogs; over > 0 {
		out = out[over:]
	}
	return reply(w, http.StatusOK, map[string]any{"logs": out, "logEntries": out})
}
