package e2b

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/e2b/egress"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// Times of life, in seconds, unless a request says another one.
const (
	defaultTimeout = 300
	maxTimeout     = 30 * 24 * 3600
)

func (s *Server) routeStates() {
	s.route("POST /sandboxes/{id}/timeout", "update-sandbox", s.setTimeout)
	s.route("POST /sandboxes/{id}/refreshes", "update-sandbox", s.refresh)
	s.route("POST /sandboxes/{id}/pause", "hibernate-sandbox", s.pause)
	s.route("POST /sandboxes/{id}/resume", "wake-sandbox", s.connect)
	s.route("POST /sandboxes/{id}/connect", "wake-sandbox", s.connect)
	s.route("POST /v2/sandboxes/{id}/connect", "wake-sandbox", s.connect)
}

// lifetime returns the time of life that a request asks for.
func lifetime(seconds *int) (time.Duration, error) {
	if seconds == nil {
		return defaultTimeout * time.Second, nil
	}
	if *seconds < 0 || *seconds > maxTimeout {
		return 0, api.Invalid("timeout", "%d is not a number of seconds from 0 to %d", *seconds, maxTimeout)
	}
	return time.Duration(*seconds) * time.Second, nil
}

// extend has a sandbox end, or be paused, after a time from now on.
func (s *Server) extend(ctx context.Context, sb *api.Sandbox, after time.Duration) error {
	end := time.Now().Add(after)
	text := end.UTC().Format(time.RFC3339Nano)
	ms := max(1, after.Milliseconds())
	if sb.Labels()[metaAutoPause] == "true" {
		ms = 0
	}
	req := api.UpdateRequest{Metadata: map[string]*string{metaEnd: &text}, Lifecycle: &api.LifecycleRequest{TTLMS: &ms}}
	if _, err := s.svc.Update(ctx, sb.ID, req); err != nil {
		return err
	}
	if ms == 0 {
		s.pauses.at(sb.ID, end)
	}
	return nil
}

func (s *Server) setTimeout(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Timeout *int `json:"timeout"`
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
	if sb.State == api.StateHibernated {
		return api.Errorf(api.CodeWrongState, "the sandbox is paused: connect to it")
	}
	if err := s.extend(r.Context(), sb, after); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// refresh has a sandbox live for a time at least.
func (s *Server) refresh(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Duration *int `json:"duration"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	after, err := lifetime(in.Duration)
	if err != nil {
		return err
	}
	sb, err := find(r.Context(), s.svc, inner(r.PathValue("id")))
	if err != nil {
		return err
	}
	if endOf(sb).Before(time.Now().Add(after)) {
		if err := s.extend(r.Context(), sb, after); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// pause writes a sandbox to disk, where it stays until it is killed.
func (s *Server) pause(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Memory *bool `json:"memory"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	if in.Memory != nil && !*in.Memory {
		return api.Errorf(api.CodeUnsupported, "a pause keeps the memory: there is none of files alone")
	}
	sb, err := find(r.Context(), s.svc, inner(r.PathValue("id")))
	if err != nil {
		return err
	}
	if sb.State == api.StateHibernated {
		return replyError(w, http.StatusConflict, "the sandbox is paused already")
	}
	if err := rest(r.Context(), s.svc, sb.ID); err != nil {
		return err
	}
	s.pauses.drop(sb.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// rest pauses a sandbox, which has no end then.
func rest(ctx context.Context, svc service.Sandboxes, id string) error {
	if _, err := svc.Hibernate(ctx, id); err != nil {
		return err
	}
	never := int64(0)
	_, err := svc.Update(ctx, id, api.UpdateRequest{Lifecycle: &api.LifecycleRequest{TTLMS: &never}})
	return err
}

// connect has a sandbox run, and live for a time at least.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Timeout *int  `json:"timeout"`
		Memory  *bool `json:"memory"`
	}
	if err := read(r, &in); err != nil {
		return err
	}
	if in.Memory != nil && !*in.Memory {
		return api.Errorf(api.CodeUnsupported, "a sandbox resumes with its memory")
	}
	after, err := lifetime(in.Timeout)
	if err != nil {
		return err
	}
	sb, err := find(r.Context(), s.svc, inner(r.PathValue("id")))
	if err != nil {
		return err
	}
	status := http.StatusOK
	switch sb.State {
	case api.StateHibernated:
		status = http.StatusCreated
		_, err = s.svc.Wake(r.Context(), sb.ID)
	case api.StatePaused:
		status = http.StatusCreated
		_, err = s.svc.Resume(r.Context(), sb.ID)
	}
	if err == nil && (status == http.StatusCreated || endOf(sb).Before(time.Now().Add(after))) {
		err = s.extend(r.Context(), sb, after)
	}
	if err != nil {
		return err
	}
	return reply(w, status, s.access(r, sb))
}

// pauses is the schedule of sandboxes that are paused at their end, and not destroyed.
type pauses struct {
	svc    service.Sandboxes
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	timers map[string]*time.Timer
}

func newPauses(svc service.Sandboxes, log *slog.Logger) *pauses {
	p := &pauses{svc: svc, log: log, timers: map[string]*time.Timer{}}
	owner := access.Owner(0)
	owner.AllTenants = true
	p.ctx, p.cancel = context.WithCancel(access.With(context.Background(), owner))
	p.wg.Go(p.recover)
	return p
}

// recover reads the schedule from the metadata of sandboxes.
func (p *pauses) recover() {
	all, err := p.svc.List(p.ctx, api.ListFilter{State: api.StateRunning, Metadata: map[string]string{metaAutoPause: "true"}})
	if err != nil {
		p.log.Warn("read which sandboxes are to be paused", "error", err)
		return
	}
	for i := range all {
		if all[i].Labels()[metaAutoPause] == "true" { // and not by its own word
			p.at(all[i].ID, endOf(&all[i]))
		}
	}
}

// at has a sandbox be paused at a time, in place of another one.
func (p *pauses) at(id string, end time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	if old := p.timers[id]; old != nil {
		old.Stop()
	}
	var own *time.Timer
	own = time.AfterFunc(time.Until(end), func() {
		p.mu.Lock()
		if p.timers[id] != own || p.ctx.Err() != nil {
			p.mu.Unlock()
			return
		}
		delete(p.timers, id)
		p.wg.Add(1)
		p.mu.Unlock()
		defer p.wg.Done()
		if err := rest(p.ctx, p.svc, id); err != nil && api.CodeOf(err) != api.CodeNotFound {
			p.log.Warn("pause a sandbox at its end", "sandbox", id, "error", err)
		}
	})
	p.timers[id] = own
}

func (p *pauses) drop(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.timers[id]; t != nil {
		t.Stop()
		delete(p.timers, id)
	}
}

// close ends the schedule. Sandboxes are paused by the next server.
func (p *pauses) close() {
	p.cancel()
	p.mu.Lock()
	for _, t := range p.timers {
		t.Stop()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// setNetwork replaces what a sandbox may reach.
func (s *Server) setNetwork(w http.ResponseWriter, r *http.Request) error {
	var in egress.Network
	if err := read(r, &in); err != nil {
		return err
	}
	req, err := in.Request(nil)
	if err != nil {
		return err
	}
	id, mask := inner(r.PathValue("id")), map[string]*string{metaMask: nil}
	if in.Mask != "" {
		mask[metaMask] = &in.Mask
	}
	if _, err := s.svc.SetNetwork(r.Context(), id, *req); err != nil {
		return err
	}
	if _, err := s.svc.Update(r.Context(), id, api.UpdateRequest{Metadata: mask}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
