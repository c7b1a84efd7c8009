package build

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// Bounds.
const (
	maxRunning = 8         // builds at once
	maxKept    = 200       // builds whose end is known
	timeout    = time.Hour // of a build
	maxLog     = 10_000    // lines of a build
)

// Service is what builds need of the machine.
type Service interface {
	service.Sandboxes
	service.Snapshots
	service.Processes
	service.Files
}

// Base returns what a build begins with: a snapshot or an image, and the user of its commands, if it has
// one. network is what the build may reach.
type Base func(ctx context.Context, plan *Plan) (from, user string, network *api.NetworkRequest, err error)

// Builds are those of all tenants. It is safe for concurrent use.
type Builds struct {
	svc  Service
	base Base
	log  *slog.Logger

	uploads *uploads

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	all   map[string]*build
	order []string // ids, the oldest first
}

// New returns Builds that keep uploads in a directory, which is emptied. Close ends them.
func New(svc Service, base Base, dir string, log *slog.Logger) (*Builds, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("remove uploads of earlier builds: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of uploads: %w", err)
	}
	b := &Builds{svc: svc, base: base, uploads: newUploads(dir), log: log, all: map[string]*build{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Close ends all builds, and removes the uploads.
func (b *Builds) Close() {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.wg.Wait()
	if err := os.RemoveAll(b.uploads.dir); err != nil {
		b.log.Warn("remove uploads of builds", "error", err)
	}
}

// States of a build.
const (
	waiting  = "waiting"
	building = "building"
	ready    = "ready"
	failed   = "error"
)

// Line is a line of the log of a build.
type Line struct {
	Time    time.Time `json:"timestamp"`
	Level   string    `json:"level"`
	Message string    `json:"message"`
	Step    string    `json:"step,omitempty"`
}

// Reason says why a build failed.
type Reason struct {
	Message string `json:"message"`
	Step    string `json:"step,omitempty"`
	Lines   []Line `json:"logEntries"`
}

// Status is the state of a build.
type Status struct {
	BuildID    string   `json:"buildID"`
	TemplateID string   `json:"templateID"`
	Status     string   `json:"status"`
	Logs       []string `json:"logs"`
	Lines      []Line   `json:"logEntries"`
	Reason     *Reason  `json:"reason,omitempty"`
}

// build is one that was asked for.
type build struct {
	id, tenant, template string
	tags                 []string

	mu     sync.Mutex
	status string
	lines  []Line
	reason *Reason
}

func (b *build) say(level, step, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lines) < maxLog {
		b.lines = append(b.lines, Line{time.Now().UTC(), level, message, step})
	}
}

func (b *build) end(step string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.status = ready; err != nil {
		b.status, b.reason = failed, &Reason{Message: err.Error(), Step: step, Lines: []Line{}}
	}
}

// Begin returns the id of a build of a template, which Start starts. Its state is that of the
// template under the tags.
func (b *Builds) Begin(ctx context.Context, template string, tags []string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := uuid.NewString() // which clients expect
	b.all[id] = &build{id: id, tenant: access.From(ctx).Tenant, template: template, tags: tags, status: waiting}
	b.order = append(b.order, id)
	if len(b.order) > maxKept {
		if old := b.all[b.order[0]]; old.running() {
			delete(b.all, id)
			b.order = b.order[:len(b.order)-1]
			return "", api.Errorf(api.CodeLimit, "there are %d builds: wait for one of them", maxKept)
		}
		delete(b.all, b.order[0])
		b.order = b.order[1:]
	}
	return id, nil
}

func (b *build) running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status == building
}

// find returns a build of the caller's tenant.
func (b *Builds) find(ctx context.Context, template, id string) (*build, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.all[id]
	if one == nil || one.template != template || one.tenant != access.From(ctx).Tenant {
		return nil, api.NotFound("build", id)
	}
	return one, nil
}

// Start carries out a plan. The build goes on when ctx ends.
func (b *Builds) Start(ctx context.Context, template, id string, plan *Plan) error {
	one, err := b.find(ctx, template, id)
	if err != nil {
		return err
	}
	if err := plan.valid(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return api.Errorf(api.CodeUnavailable, "the daemon ends")
	}
	running := 0
	for _, other := range b.all {
		if other.running() {
			running++
		}
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	switch {
	case one.status != waiting:
		return api.Errorf(api.CodeWrongState, "the build has begun already")
	case running >= maxRunning:
		return api.Errorf(api.CodeLimit, "%d builds run: wait for one of them", maxRunning)
	}
	one.status = building
	own, cancel := context.WithTimeout(access.With(b.ctx, access.From(ctx)), timeout)
	b.wg.Go(func() {
		defer cancel()
		w := &worker{builds: b, build: one, plan: plan, env: map[string]string{}}
		step, err := w.run(own)
		if err != nil {
			one.say("error", step, err.Error())
		}
		one.end(step, err)
	})
	return nil
}

// Status returns the state of a build with the lines of its log from a number on.
func (b *Builds) Status(ctx context.Context, template, id string, from int) (*Status, error) {
	one, err := b.find(ctx, template, id)
	if err != nil {
		return nil, err
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	s := &Status{BuildID: id, TemplateID: template, Status: one.status, Logs: []string{}, Lines: []Line{}, Reason: one.reason}
	const page = 100
	if from = max(from, 0); from < len(one.lines) {
		s.Lines = append(s.Lines, one.lines[from:min(len(one.lines), from+page)]...)
	}
	return s, nil
}

// Has reports whether files were uploaded.
func (b *Builds) Has(tenant, hash string) (bool, error) { return b.uploads.has(tenant, hash) }

// Keep keeps an archive of files.
func (b *Builds) Keep(tenant, hash string, from io.Reader) error {
	return b.uploads.keep(tenant, hash, from)
}
