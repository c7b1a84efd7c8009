package resting

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/storage/store"
)

// activityRecord is what is stored of the activity of a sandbox.
type activityRecord struct {
	At time.Time `json:"at"`
}

// SaveActivity writes down when sandboxes were used last, of those of which that has
// changed.
func SaveActivity(records *store.Store, log *slog.Logger, now time.Time, list ...*sandboxes.Instance) {
	var changes []store.Change
	for _, b := range list {
		if at := b.UsedAt(now); b.SaveUse(at) {
			changes = append(changes, store.Change{Table: store.Activity, ID: b.ID, Doc: activityRecord{At: at.UTC()}})
		}
	}
	if len(changes) == 0 {
		return
	}
	if err := records.Apply(context.Background(), changes...); err != nil {
		log.Warn("write down when sandboxes were used", "error", err) // its timers begin earlier after a restart
	}
}

// ReadActivity finds out when sandboxes were used last, and returns the changes that forget
// the activity of others. What was used later than was written down has not become idle
// earlier for it.
func ReadActivity(ctx context.Context, records *store.Store, registry *sandboxes.Registry, now time.Time) (changes []store.Change, err error) {
	saved := map[string]time.Time{}
	err = records.Each(ctx, store.Activity, func(id string, doc []byte) error {
		var a activityRecord
		if err := json.Unmarshal(doc, &a); err != nil {
			return api.Errorf(api.CodeCorrupt, "record of activity of sandbox %s: %w", id, err)
		}
		if registry.Get(id) == nil {
			changes = append(changes, store.Change{Table: store.Activity, ID: id})
		}
		saved[id] = a.At
		return nil
	})
	for _, b := range registry.All() {
		at := now
		if written, ok := saved[b.ID]; ok {
			if used := written.Add(lookAfter(b.View().Lifecycle.IdleTimeout())); used.Before(now) {
				at = used
			}
		}
		b.RecallUse(at, saved[b.ID])
	}
	return changes, err
}
