package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/workload"
)

// noResult is the text that guest/warm.py writes to /root/result.txt.
const noResult = "nothing yet\n"

// fork makes a child for each plan.
func (d *demo) fork(ctx context.Context) error {
	n := len(plans())
	d.say("The sandbox is forked into %d at once: files, memory and the running server.", n)
	f, private, err := d.forkInto(ctx, n, d.s.Name())
	if err != nil {
		return err
	}
	d.forked = f
	d.say("It stood still for %.1f ms. The call returned after %.1f ms, and after %.1f ms all %d children had answered a command.",
		millis(f.Pause), millis(f.Return), millis(f.AllReady), n)
	d.say("Each child has %.1f MiB of its own and shares the rest, the array of %d MiB included.", private, arrayMiB)
	return nil
}

// forkInto forks the source and adds a row to the table.
func (d *demo) forkInto(ctx context.Context, n int, prefix string) (*workload.Forked, float64, error) {
	f, err := d.s.Fork(ctx, d.source, n, prefix)
	if err != nil {
		return nil, 0, err
	}
	private, err := d.s.PrivateMiB(ctx, f.IDs())
	if err != nil {
		return nil, 0, err
	}
	d.report.Forks = append(d.report.Forks, forkRow(f, private))
	return f, private, nil
}

// diverge runs another plan in each child.
func (d *demo) diverge(ctx context.Context) error {
	d.say("Every child asks the server that it inherited, at its own 127.0.0.1:%d, to run another plan on the array: predict how the", workload.Port)
	d.say("wave goes on. Each also writes to the array and to files. A score of 1 is a perfect prediction; the noise allows 0.67.\n")
	todo := plans()
	outcomes := make([]Outcome, len(todo))
	err := workload.Each(ctx, len(todo), func(ctx context.Context, i int) error {
		outcomes[i].Sandbox = d.forked.Children[i].ID
		return d.ask(ctx, outcomes[i].Sandbox, todo[i].program, &outcomes[i])
	})
	if err != nil {
		return err
	}
	tw := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "   CHILD\tPLAN\tSCORE\tFOUND")
	for i, o := range outcomes {
		if o.Plan != todo[i].name || o.PID != d.pid {
			return fmt.Errorf("child %d answered for plan %q as process %d, not for %q as the inherited process %d", i+1, o.Plan, o.PID, todo[i].name, d.pid)
		}
		fmt.Fprintf(tw, "   %s\t%s\t%.4f\t%s\n", d.forked.Children[i].Name, todo[i].what, o.Score, o.Note)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	d.report.Plans = outcomes
	d.best = slices.MaxFunc(outcomes, func(a, b Outcome) int { return cmp.Compare(a.Score, b.Score) })
	d.say("\nThe best plan is %q.", d.best.Plan)
	return nil
}

// isolated shows that the source does not have the changes of its children.
func (d *demo) isolated(ctx context.Context) error {
	var now struct {
		Plan  bool
		First float64
		File  string
	}
	const look = `print(json.dumps({"plan": "plan" in globals(), "first": float(data[0]), "file": open("/root/result.txt").read()}))`
	if err := d.ask(ctx, d.source, look, &now); err != nil {
		return err
	}
	if now.Plan || now.First != d.first || now.File != noResult {
		return fmt.Errorf("the source has something of its children: %+v", now)
	}
	d.say("The source was asked in the meantime: it has no variable \"plan\", data[0] is what it was (%.4f), and its /root/result.txt", now.First)
	d.say("still says %q.", strings.TrimSpace(noResult))
	return nil
}

// compare diffs the best child with another one.
func (d *demo) compare(ctx context.Context) error {
	other := d.report.Plans[0]
	if other.Plan == d.best.Plan {
		other = d.report.Plans[1]
	}
	diff, err := d.c.Sandboxes.Diff(ctx, other.Sandbox, d.best.Sandbox, api.DiffRequest{Hunks: true})
	if err != nil {
		return err
	}
	d.report.Diff = diff.Changes
	want := map[string]api.ChangeKind{
		"/root/" + other.Plan + ".npy": api.Deleted, "/root/" + d.best.Plan + ".npy": api.Added, "/root/result.txt": api.Modified,
	}
	d.say("What differs between the files of %q and those of %q:\n", other.Plan, d.best.Plan)
	for _, c := range diff.Changes {
		d.say("   %-8s  %6d bytes  %s", c.Kind, c.Size, c.Path)
		for line := range strings.Lines(c.Hunks) {
			d.say("             %s", strings.TrimSuffix(line, "\n"))
		}
		if want[c.Path] == c.Kind {
			delete(want, c.Path)
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("the diff lacks %v", want)
	}
	return nil
}

// promote replaces the state of the source by that of the best child, and checks it.
func (d *demo) promote(ctx context.Context) error {
	sb, err := d.c.Sandboxes.Promote(ctx, d.best.Sandbox)
	if err != nil {
		return err
	}
	if sb.ID != d.source {
		return fmt.Errorf("promoted into %s, not into the source %s", sb.ID, d.source)
	}
	var now struct {
		Outcome
		First float64
		File  string
		Saved int
	}
	const look = `print(json.dumps({"plan": plan, "score": score, "pid": os.getpid(), "first": float(data[0]),
    "file": open("/root/result.txt").read(), "saved": len(np.load("/root/" + plan + ".npy"))}))`
	if err := d.ask(ctx, d.source, look, &now); err != nil {
		return err
	}
	if now.Plan != d.best.Plan || now.Score != d.best.Score || now.PID != d.best.PID || now.First != d.best.Score || now.Saved == 0 {
		return fmt.Errorf("the source says %+v, the best child was %+v", now, d.best)
	}
	d.report.Promoted = Outcome{Sandbox: sb.ID, Plan: now.Plan, Score: now.Score, Note: d.best.Note, PID: now.PID}
	d.say("The state of %q was given to the source, which keeps its id and name. Asked now, its server (still process %d) says", d.best.Plan, now.PID)
	d.say("plan = %q, score = %.4f and data[0] = %.4f, and /root has the winner's files. Its way goes on from there.", now.Plan, now.Score, now.First)
	return nil
}
