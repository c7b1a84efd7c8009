package volumes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
	"ramet.dev/ramet/internal/storage/store"
	"ramet.dev/ramet/internal/storage/volume"
)

// Config is what Volumes work with.
type Config struct {
	Dir   string // of the files of volumes
	Store *store.Store
	// Having returns the ids of the sandboxes that have a volume.
	Having func(id string) []string
	// DiskQuota returns the quota of disk of a tenant in MiB, 0 for none.
	DiskQuota func(tenant string) int64
	Log       *slog.Logger
}

// record is what is stored of a volume.
type record struct {
	ID        string    `json:"id"`
	Tenant    string    `json:"tenant,omitempty"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
	LimitMiB  int64     `json:"limit_mib"`
}

func (r *record) tenant() string { return access.OfRecord(r.Tenant) }

// entry is a volume of the node.
type entry struct {
	record
	uses   int            // requests that are about to give it to a sandbox, or that read its files
	opened *volume.Volume // nil until it is needed
}

// Volumes are the volumes of a node. It is safe for concurrent use.
type Volumes struct {
	cfg Config

	mu     sync.Mutex
	all    map[string]*entry
	served map[*launch.Sentry]bool
	held   map[heldFile]map[*launch.Sentry]bool // files without names, and whose sandboxes have them open
	closed bool
	loops  sync.WaitGroup
}

// Open reads the records.
func Open(ctx context.Context, cfg Config) (*Volumes, error) {
	v := &Volumes{cfg: cfg, all: map[string]*entry{}, served: map[*launch.Sentry]bool{}, held: map[heldFile]map[*launch.Sentry]bool{}}
	err := cfg.Store.Each(ctx, store.Volumes, func(id string, doc []byte) error {
		e := &entry{}
		if err := json.Unmarshal(doc, &e.record); err != nil {
			return api.Errorf(api.CodeCorrupt, "record of volume %s: %w", id, err)
		}
		v.all[id] = e
		return nil
	})
	if err != nil {
		return nil, err
	}
	return v, v.sweep()
}

// sweep removes directories without a record: the daemon ended before it had removed them.
func (v *Volumes) sweep() error {
	dirs, err := os.ReadDir(v.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for _, d := range dirs {
		if api.IsID(api.KindVolume, d.Name()) && v.all[d.Name()] == nil {
			if err := os.RemoveAll(v.dir(d.Name())); err != nil {
				return fmt.Errorf("remove volume: %w", err)
			}
		}
	}
	return nil
}

func (v *Volumes) dir(id string) string { return filepath.Join(v.cfg.Dir, id) }

// find returns the volume that the caller calls ref. v.mu must be locked.
func (v *Volumes) find(ctx context.Context, ref string) (*entry, error) {
	caller := access.From(ctx)
	e := v.all[ref]
	if e == nil {
		for _, x := range v.all {
			if x.Name == ref && x.tenant() == caller.Tenant {
				e = x
			}
		}
	}
	if e == nil || !caller.Sees(e.tenant(), []string{e.ID}) {
		return nil, api.NotFound("volume", ref)
	}
	audit.Of(ctx).Object(e.ID)
	return e, nil
}

// open returns the files of a volume. v.mu must be locked.
func (v *Volumes) open(e *entry) (*volume.Volume, error) {
	if v.closed {
		return nil, api.Errorf(api.CodeUnavailable, "the daemon is ending")
	}
	if e.opened == nil {
		opened, err := volume.Open(context.Background(), v.dir(e.ID), e.LimitMiB<<20)
		if err != nil {
			return nil, err
		}
		e.opened = opened
	}
	return e.opened, nil
}

// CreateVolume makes a volume. A name that is taken is an error of CodeNameTaken.
func (v *Volumes) CreateVolume(ctx context.Context, req api.VolumeRequest) (*api.Volume, error) {
	if err := req.Valid(); err != nil {
		return nil, err
	}
	caller := access.From(ctx)
	if err := caller.MayMakeTree("volumes"); err != nil {
		return nil, err
	}
	e := &entry{record: record{
		ID: api.NewID(api.KindVolume), Tenant: access.Recorded(caller.Tenant), Name: req.Name, CreatedAt: time.Now().UTC(), LimitMiB: cmp.Or(req.LimitMiB, api.DefaultVolumeMiB),
	}}
	v.mu.Lock()
	defer v.mu.Unlock()
	total := e.LimitMiB
	for _, x := range v.all {
		if x.tenant() != caller.Tenant {
			continue
		}
		if x.Name == req.Name {
			return nil, api.Errorf(api.CodeNameTaken, "a volume is called %q already", req.Name)
		}
		total += x.LimitMiB
	}
	if quota := v.cfg.DiskQuota(caller.Tenant); quota > 0 && total > quota {
		return nil, api.Errorf(api.CodeLimit, "limit_mib: the volumes of tenant %s could hold %d MiB together, and its quota of disk is %d", caller.Tenant, total, quota)
	}
	if _, err := v.open(e); err != nil {
		return nil, fmt.Errorf("create volume: %w", err)
	}
	if err := v.cfg.Store.Apply(ctx, store.Change{Table: store.Volumes, ID: e.ID, Doc: e.record}); err != nil {
		e.opened.Close()
		os.RemoveAll(v.dir(e.ID)) // else the next daemon does
		return nil, fmt.Errorf("create volume: %w", err)
	}
	v.all[e.ID] = e
	audit.Of(ctx).Object(e.ID)
	return v.describe(ctx, e)
}

// describe returns what users see of a volume. v.mu must be locked.
func (v *Volumes) describe(ctx context.Context, e *entry) (*api.Volume, error) {
	files, err := v.open(e)
	if err != nil {
		return nil, err
	}
	used, _, nodes, err := files.Usage(ctx)
	if err != nil {
		return nil, fmt.Errorf("read volume %s: %w", e.ID, err)
	}
	return &api.Volume{
		ID: e.ID, Tenant: e.Tenant, Name: e.Name, CreatedAt: e.CreatedAt, LimitMiB: e.LimitMiB, UsedMiB: float64(used) / (1 << 20), Files: nodes, Sandboxes: v.cfg.Having(e.ID),
	}, nil
}

// Volumes returns the volumes that the caller sees, in the order of their names.
func (v *Volumes) Volumes(ctx context.Context) ([]api.Volume, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	caller := access.From(ctx)
	list := []api.Volume{}
	for _, e := range v.all {
		if !caller.Sees(e.tenant(), []string{e.ID}) {
			continue
		}
		d, err := v.describe(ctx, e)
		if err != nil {
			return nil, err
		}
		list = append(list, *d)
	}
	slices.SortFunc(list, func(a, b api.Volume) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Name, b.Name))
	})
	return list, nil
}

// GetVolume returns a volume.
func (v *Volumes) GetVolume(ctx context.Context, ref string) (*api.Volume, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e, err := v.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return v.describe(ctx, e)
}

// RemoveVolume removes a volume with its files. One that a sandbox has is an error of
// CodeConflict.
func (v *Volumes) RemoveVolume(ctx context.Context, ref string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	e, err := v.find(ctx, ref)
	if err != nil {
		return err
	}
	if having := v.cfg.Having(e.ID); len(having) > 0 {
		return api.Errorf(api.CodeConflict, "volume %s is in use by sandbox %s: destroy it first", e.Name, strings.Join(having[:min(3, len(having))], ", "))
	}
	if e.uses > 0 {
		return api.Errorf(api.CodeConflict, "volume %s is being used: try again", e.Name)
	}
	if err := v.cfg.Store.Apply(ctx, store.Change{Table: store.Volumes, ID: e.ID}); err != nil {
		return fmt.Errorf("remove volume: %w", err)
	}
	delete(v.all, e.ID)
	if e.opened != nil {
		e.opened.Close()
	}
	if err := os.RemoveAll(v.dir(e.ID)); err != nil {
		return fmt.Errorf("remove the files of volume %s, which the next daemon tries again: %w", e.Name, err)
	}
	return nil
}

// Use returns the volumes that a new sandbox asks for, besides those that it had, with their ids,
// and makes sure until release is called that none of both is removed. The caller of a request
// sees them.
func (v *Volumes) Use(ctx context.Context, had, more []api.VolumeMount) (mounts []api.VolumeMount, release func(), err error) {
	if err := api.ValidVolumes("volumes", had, more); err != nil {
		return nil, nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var used []*entry
	for _, m := range had {
		e := v.all[m.Volume]
		if e == nil {
			return nil, nil, api.Errorf(api.CodeNotFound, "volume %s (%s), which the sandbox had at %s, is gone", m.Name, m.Volume, m.Path)
		}
		used = append(used, e)
	}
	for _, m := range more {
		e, err := v.find(ctx, m.Volume)
		if err != nil {
			return nil, nil, err
		}
		m.Volume, m.Name = e.ID, e.Name
		mounts = append(mounts, m)
		used = append(used, e)
	}
	for _, e := range used {
		e.uses++
	}
	return mounts, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, e := range used {
			e.uses--
		}
	}, nil
}

// Close ends the work for sentries and closes all volumes. Sentries wait for the next daemon. The
// contexts of the calls to Serve have ended.
func (v *Volumes) Close() {
	v.loops.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for _, e := range v.all {
		if e.opened == nil {
			continue
		}
		if err := e.opened.Close(); err != nil {
			v.cfg.Log.Error("close a volume", "id", e.ID, "error", err)
		}
		e.opened = nil
	}
}
