package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

func (a *app) lsCommand() *cobra.Command {
	var filter api.ListFilter
	var state string
	var meta []string
	var quiet bool
	var view tenantView
	cmd := &cobra.Command{
		SuggestFor: []string{"get"},
		Use:        "ls", Short: "List sandboxes", Args: cobra.NoArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (err error) {
			filter.State = api.State(state)
			if filter.Metadata, err = parsePairs("meta", meta); err != nil {
				return err
			}
			sandboxes, err := c.Sandboxes.List(ctx, filter, view.options()...)
			if err != nil {
				return err
			}
			return a.showIDs(sandboxes, quiet, idsOf(sandboxes, func(s *api.Sandbox) string { return s.ID }), sandboxTable(sandboxes, view))
		}),
	}
	f := cmd.Flags()
	stateVar(f, &state, "only sandboxes in this state")
	f.Var(notEmpty{&filter.Image, "is not an image"}, "image", "only sandboxes of this image")
	f.StringArrayVar(&meta, "meta", nil, "only sandboxes with this metadata K=V; may be repeated")
	f.Var(notEmpty{&filter.Parent, "is not a sandbox"}, "parent", "only sandboxes that were forked from this one or restored from a snapshot of it, or from this snapshot")
	view.flag(f)
	quietVar(f, &quiet)
	completeStates(cmd)
	a.completeOption(cmd, "parent", a.completeBoth)
	a.completeOption(cmd, "image", a.completeImages)
	return cmd
}

func sandboxTable(sandboxes []api.Sandbox, view tenantView) func(io.Writer) error {
	var rows [][]string
	for _, s := range sandboxes {
		image := s.ImageName
		if image == "" {
			image = s.Image
		}
		rows = append(rows, view.row(tenantName(s.Tenant), s.ID, s.Name, string(s.State), image, s.Parent, age(s.CreatedAt, time.Now()), shortened(joinPairs(s.Metadata))))
	}
	return table(view.row("TENANT", "ID", "NAME", "STATE", "IMAGE", "PARENT", "AGE", "METADATA"), rows)
}

// shortened cuts what is too long for a table; inspect shows all of it.
func shortened(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

func (a *app) statsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "stats SBX", Short: "Show what a sandbox uses now", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeFirst(a.completeSandboxes),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			st, err := c.Sandboxes.Stats(ctx, args[0])
			if err != nil {
				return err
			}
			return a.show(st, table([]string{"STATE", "PRIVATE", "SHARED", "DISK", "CPU", "PROCESSES"}, [][]string{statsRow(st)}))
		}),
	}
}

func statsRow(st *api.Stats) []string {
	disk := diskUsed(&st.Disk, " / ")
	if st.State == api.StateHibernated || st.State == api.StateCreating { // no process on the host
		return []string{string(st.State), "", "", disk, "", ""}
	}
	return []string{string(st.State), mib(st.Memory.PrivateMiB), mib(st.Memory.SharedMiB), disk, fmt.Sprintf("%.2f s", st.CPUSeconds), strconv.Itoa(st.Processes)}
}

func (a *app) inspectCommand() *cobra.Command {
	return &cobra.Command{
		SuggestFor: []string{"describe", "info", "show"},
		Use:        "inspect SBX|SNAP", Short: "Show all that is known of a sandbox or snapshot", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFirst(a.completeSandboxes),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			if api.IsID(api.KindSnapshot, args[0]) {
				var snap *api.Snapshot
				err := anywhere(args[0], func(opts ...client.Option) (err error) {
					snap, err = c.Snapshots.Get(ctx, args[0], opts...)
					return err
				})
				if err != nil {
					return err
				}
				return a.show(snap, snapshotPairs(snap))
			}
			var sb *api.Sandbox
			err := anywhere(args[0], func(opts ...client.Option) (err error) {
				sb, err = c.Sandboxes.Get(ctx, args[0], opts...)
				return err
			})
			if api.CodeOf(err) == api.CodeNotFound {
				if snap, serr := c.Snapshots.Get(ctx, args[0]); serr == nil {
					return a.show(snap, snapshotPairs(snap))
				}
			}
			if err != nil {
				return err
			}
			return a.show(sb, sandboxPairs(sb))
		}),
	}
}

func sandboxPairs(s *api.Sandbox) func(io.Writer) error {
	i := s.Isolation
	layers := map[string]api.Layer{
		"sentry": i.Sentry, "systrap": i.Systrap, "seccomp": i.Seccomp, "no_new_privs": i.NoNewPrivs, "capabilities_dropped": i.Caps,
		"user_namespace": i.UserNS, "own_user": i.OwnUser, "namespaces": i.Namespaces, "empty_root": i.EmptyRoot, "rlimits": i.Rlimits, "cgroup": i.Cgroup,
	}
	var on, off []string
	for _, name := range slices.Sorted(maps.Keys(layers)) {
		if layers[name] == api.LayerOn {
			on = append(on, name)
		} else {
			off = append(off, name)
		}
	}
	if len(on) == 0 {
		off = nil // it has no process that could have any
	}
	image := s.Image
	if s.ImageName != "" {
		image += " (" + s.ImageName + ")"
	}
	return pairs(
		"id", s.ID, "tenant", s.Tenant, "name", s.Name, "state", string(s.State), "reason", s.Reason, "image", image, "parent", s.Parent, "snapshot", s.Snapshot,
		"depth", strconv.Itoa(s.Depth), "created", s.CreatedAt.Format(time.RFC3339),
		"limits", limitsOf(s.Limits),
		"memory", memoryOf(s), "disk", diskOf(s),
		"env", joinPairs(s.Env), "metadata", joinPairs(s.Metadata), "lifecycle", lifecycle(s.Lifecycle), "auto-checkpoint", autoCheckpoint(s.AutoCheckpoint), "self-control", selfControl(s.SelfControl), "failed", failedHooks(&s.Identity), "isolation", strings.Join(on, " "), "missing", strings.Join(off, " "),
	)
}

// limitsOf returns the limits that there are, or an empty text.
func limitsOf(l api.Limits) string {
	var out []string
	add := func(limited bool, format string, value any) {
		if limited {
			out = append(out, fmt.Sprintf(format, value))
		}
	}
	add(l.CPUs > 0, "%g cpus", l.CPUs)
	add(l.MemoryMiB > 0, "%d MiB memory", l.MemoryMiB)
	add(l.DiskMiB > 0, "%d MiB disk", l.DiskMiB)
	add(l.Pids > 0, "%d pids", l.Pids)
	add(l.OpenFiles > 0, "%d open files", l.OpenFiles)
	return strings.Join(out, ", ")
}

func selfControl(c *api.SelfControl) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%d forks and %d snapshots of the whole tree, %d generations", c.Forks, c.Snapshots, c.Depth)
}

func snapshotPairs(s *api.Snapshot) func(io.Writer) error {
	return pairs(
		"id", s.ID, "tenant", s.Tenant, "name", s.Name, "label", s.Label, "state", string(s.State), "reason", s.Reason, "sandbox", s.Sandbox, "parent", s.Parent, "image", s.Image,
		"depth", strconv.Itoa(s.Depth), "created", s.CreatedAt.Format(time.RFC3339), "on disk", strconv.FormatBool(s.OnDisk),
		"size", byteSize(s.SizeBytes), "depends on", strings.Join(s.DependsOn, " "), "expires", expiry(s.ExpiresAt), "pause", millis(s.PauseMS), "engine", s.Engine, "metadata", joinPairs(s.Metadata),
	)
}

func expiry(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.Format(time.RFC3339)
}

func joinPairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, " ")
}

// removed is what rm prints with --json.
type removed struct {
	Removed []string     `json:"removed"`
	Failed  []notRemoved `json:"failed,omitempty"`
}

// notRemoved is what could not be removed, and why.
type notRemoved struct {
	Ref   string     `json:"ref"`
	Error *api.Error `json:"error"`
}

func (a *app) rmCommand() *cobra.Command {
	var how api.SnapshotDeletion
	var sel selection
	cmd := &cobra.Command{
		SuggestFor: []string{"delete", "destroy", "remove", "stop", "terminate"},
		Use:        "rm SBX|SNAP…", Short: "End sandboxes or delete snapshots",
		Long: `End sandboxes or delete snapshots; of the same name, the sandbox.

--children, --state and --meta select sandboxes in place of names: those to which all of them apply. --children selects what 'ramet tree' shows below a sandbox, over any number of generations; the sandbox itself and all snapshots stay. If nothing is selected, nothing is removed and the exit code is 0.`,
		Args: sel.args, ValidArgsFunction: a.completeBoth,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			switch {
			case sel.given():
				return a.removeSelected(ctx, c, &sel)
			case sel.dryRun:
				return a.wouldRemove(ctx, c, args, sel.quiet)
			}
			return a.removeEach(args, func(ref string) error {
				if api.IsID(api.KindSnapshot, ref) {
					return anywhere(ref, func(opts ...client.Option) error { return c.Snapshots.Delete(ctx, ref, how, opts...) })
				}
				err := anywhere(ref, func(opts ...client.Option) error { return c.Sandboxes.Destroy(ctx, ref, opts...) })
				if api.CodeOf(err) == api.CodeNotFound && !api.IsID(api.KindSandbox, ref) {
					switch _, serr := c.Snapshots.Get(ctx, ref); {
					case serr == nil:
						return c.Snapshots.Delete(ctx, ref, how)
					case api.CodeOf(serr) == api.CodeNotFound:
						return api.NotFound("sandbox or snapshot", ref)
					}
				}
				return err
			})
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&how.Cascade, "cascade", false, "delete the snapshots that depend on these, too")
	f.BoolVar(&how.Flatten, "flatten", false, "write the snapshots that depend on these anew, so that they do not")
	sel.flags(cmd)
	completeStates(cmd)
	a.completeOption(cmd, "children", a.completeBoth)
	return cmd
}

// removeEach removes all it can and returns what went wrong, the first code of
// which decides the exit code. Of several, JSON says which were removed.
func (a *app) removeEach(refs []string, remove func(string) error) error {
	done := []string{}
	errs := make([]error, len(refs))
	todo := make([]int, len(refs))
	for i := range refs {
		todo[i] = i
	}
	for again := true; again; {
		again = false
		todo = slices.DeleteFunc(todo, func(i int) bool {
			if errs[i] = remove(refs[i]); errs[i] == nil {
				done = append(done, refs[i])
				again = true // others may not be in use any more
			}
			return api.CodeOf(errs[i]) != api.CodeConflict
		})
	}
	if err := errors.Join(errs...); err != nil {
		if len(done) > 0 && !a.json {
			fmt.Fprintln(a.Out, strings.Join(done, "\n"))
		}
		if len(refs) == 1 || !a.json {
			return err
		}
		out := removed{Removed: done}
		for i, err := range errs {
			if err != nil {
				out.Failed = append(out.Failed, notRemoved{refs[i], api.AsError(err)})
			}
		}
		if err := a.writeJSON(out); err != nil {
			return err
		}
		return ExitError(api.CodeOf(err).ExitCode())
	}
	return a.show(removed{Removed: done}, lines(done))
}

// memoryOf describes what a sandbox occupies, if it was looked at.
func memoryOf(s *api.Sandbox) string {
	if s.Memory == nil {
		return ""
	}
	return mib(s.Memory.PrivateMiB) + " private, " + mib(s.Memory.SharedMiB) + " shared"
}

// diskOf describes what a sandbox's files take, if it was looked at.
func diskOf(s *api.Sandbox) string {
	if s.Disk == nil {
		return ""
	}
	return diskUsed(s.Disk, " of ") + " used, " + mib(s.Disk.PrivateMiB) + " private"
}

// diskUsed says what is used of the limit, if there is one.
func diskUsed(d *api.Disk, of string) string {
	if d.LimitMiB == 0 {
		return mib(d.UsedMiB)
	}
	return mib(d.UsedMiB) + of + mib(float64(d.LimitMiB))
}
