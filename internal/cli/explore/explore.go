package explore

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
)

// Group is the commands of this package, for one session.
type Group struct{ *session.Session }

// New returns the commands of a session.
func New(s *session.Session) *Group { return &Group{s} }

// options are the options of explore.
type options struct {
	file, score, then, keep      string
	cwd, user                    string
	set, env, vary               []string
	width, parallel, least       int
	shell, best, first, minimize bool
	diff, detach, quiet          bool
	timeout, within              time.Duration
}

// ExploreCommand returns the explore command, with those below it.
func (g *Group) ExploreCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		SuggestFor: []string{"try", "search", "sweep"},
		Use:        "explore SBX [-f PLAN] [-n N] [-- CMD…]",
		Short:      "Fork a sandbox into attempts, score them, and take the best",
		Long: "Fork a sandbox into attempts, run a command in each, score them, and promote, merge or keep the best. The others are destroyed.\n\n" +
			"A plan is a file in YAML or JSON with the members of the REST interface; in its lists of files, 'from' names a file here. Options change the plan.\n\n" +
			"The exploration belongs to the daemon. An interrupt cancels it; with --detach it goes on by itself, and 'ramet explore show' has its table. The exit code is 1 if there is no winner, and 4 if the merge of the winners leaves conflicts.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the sandbox to explore")
			}
			return nil
		},
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			plan, err := o.plan(args[1:], g.In)
			if err != nil {
				return err
			}
			return g.explore(ctx, c, args[0], plan, &o)
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "file", "f", "", "file with a plan; - is standard input")
	f.StringArrayVar(&o.set, "set", nil, "member of the plan, such as search.rounds=3; may be repeated")
	f.IntVarP(&o.width, "width", "n", 0, "number of attempts (default the number of variants, or 1)")
	f.BoolVarP(&o.shell, "shell", "c", false, "the command is one argument, which /bin/sh -c runs")
	f.StringArrayVarP(&o.env, "env", "e", nil, "variable K=V for all attempts, or K with its value here; may be repeated")
	f.StringVarP(&o.cwd, "cwd", "w", "", "directory of the command, absolute (default that of the sandbox)")
	f.StringVarP(&o.user, "user", "u", "", "user of the command: name or uid, optionally :group (default that of the sandbox)")
	f.StringArrayVar(&o.vary, "vary", nil, "variable in which attempts differ, NAME=VALUE,VALUE…; repeated, each combination is an attempt")
	f.StringVar(&o.score, "score", "", "where the score comes from: exit_code, number (the last line), value, duration, regexp=PATTERN, json=PATH, or command=COMMAND, which prints it (default exit_code)")
	values.CompleteValues(cmd, "score", string(api.ScoreExitCode), string(api.ScoreNumber), string(api.ScoreDuration), "regexp=", "json=", "command=")
	f.BoolVar(&o.minimize, "min", false, "the lowest score is the best")
	f.BoolVar(&o.first, "first", false, "stop all others as soon as one attempt succeeds")
	f.BoolVar(&o.best, "best", false, "promote the best attempt: the sandbox goes on with its state; the same as --then promote")
	f.StringVar(&o.then, "then", "", "what becomes of the winners: promote, merge or none (default none)")
	values.CompleteValues(cmd, "then", string(api.ThenPromote), string(api.ThenMerge), string(api.ThenNone))
	f.StringVar(&o.keep, "keep", "", "attempts that stay as sandboxes: none, winners or all (default winners if nothing becomes of them, else none)")
	values.CompleteValues(cmd, "keep", string(api.KeepNone), string(api.KeepWinners), string(api.KeepAll))
	f.BoolVar(&o.diff, "diff", false, "list the files in which each attempt differs from the sandbox")
	f.IntVar(&o.parallel, "parallel", 0, "attempts that run at once (default all)")
	f.IntVar(&o.least, "min-width", 0, "be content with so few attempts if a quota or the memory allows no more")
	values.DurationVar(f, &o.timeout, "timeout", "kill a run that takes longer, such as 10s; it has failed")
	values.DurationVar(f, &o.within, "within", "end after this time with the best attempt until then")
	f.BoolVar(&o.detach, "detach", false, "print the id when the attempts run, and leave the exploration to the daemon")
	values.QuietVar(f, &o.quiet)
	cmd.AddCommand(g.lsCommand(), g.showCommand(), g.cancelCommand(), g.rmCommand())
	return cmd
}

// plan returns the plan that the options ask for.
func (o *options) plan(command []string, in io.Reader) (p api.ExplorePlan, err error) {
	if o.best && o.then != "" {
		return p, api.Invalid("best", "it is --then promote: give one of the two")
	}
	doc := map[string]any{}
	if o.file != "" {
		if doc, err = readPlan(o.file, in); err != nil {
			return p, err
		}
	}
	for _, s := range o.set {
		if err := set(doc, s); err != nil {
			return p, err
		}
	}
	if p, err = decode(doc); err != nil {
		return p, err
	}
	if err := o.command(&p, command); err != nil {
		return p, err
	}
	env, err := values.ParseEnv(o.env)
	if err != nil {
		return p, err
	}
	if p.Run.Env == nil {
		p.Run.Env = env
	} else {
		for k, v := range env {
			p.Run.Env[k] = v
		}
	}
	if len(o.vary) > 0 {
		if len(p.Variants) > 0 {
			return p, api.Invalid("vary", "the plan has variants already")
		}
		if p.Variants, err = vary(o.vary); err != nil {
			return p, err
		}
	}
	if o.score != "" {
		if p.Score, err = scoreOf(o.score); err != nil {
			return p, err
		}
	}
	o.overrule(&p)
	if p.Run.TimeoutMS, err = overruled(p.Run.TimeoutMS, "timeout", o.timeout); err != nil {
		return p, err
	}
	if p.Limits.TimeoutMS, err = overruled(p.Limits.TimeoutMS, "within", o.within); err != nil {
		return p, err
	}
	if err := p.Valid(); err != nil && (o.file != "" || len(o.set) > 0) {
		return p, api.Invalid("plan", "%v", err) // a member of the plan has its whole name there
	} else if err != nil {
		return p, err
	}
	return p, nil
}

// command puts the command of the command line into a plan.
func (o *options) command(p *api.ExplorePlan, words []string) error {
	if len(words) == 0 {
		if o.shell {
			return api.Invalid("shell", "with -c (--shell) the command is an argument, and there is none")
		}
		if o.file == "" && len(o.set) == 0 {
			return api.Invalid("command", "there is none: write a command after --, a shell command after -c, or the file of a plan after -f")
		}
		return nil
	}
	p.Run.Argv, p.Run.Shell, p.Run.Code = words, "", ""
	if o.shell {
		if len(words) > 1 {
			return api.Invalid("shell", "with -c (--shell) the command is one argument: quote it")
		}
		if words[0] == "" {
			return api.Invalid("shell", "its text is empty")
		}
		p.Run.Argv, p.Run.Shell = nil, words[0]
	}
	return nil
}

// overrule puts the options that the user gave into a plan.
func (o *options) overrule(p *api.ExplorePlan) {
	if o.width != 0 {
		p.Width = o.width
	}
	if o.cwd != "" {
		p.Run.Cwd = o.cwd
	}
	if o.user != "" {
		p.Run.User = o.user
	}
	if o.minimize {
		p.Score.Goal = api.GoalMin
	}
	if o.first {
		p.Search.Strategy = api.SearchFirst
	}
	if o.best {
		p.Then = api.ThenPromote
	}
	if o.then != "" {
		p.Then = api.ExploreThen(o.then)
	}
	if o.keep != "" {
		p.Keep = api.ExploreKeep(o.keep)
	}
	if o.diff && p.Diff == nil {
		p.Diff = &api.DiffRequest{}
	}
	if o.parallel != 0 {
		p.Limits.Parallel = o.parallel
	}
	if o.least != 0 {
		p.Limits.MinWidth = o.least
	}
}

// overruled returns the time of an option, or that of the plan if the option was not given.
func overruled(ms int64, option string, d time.Duration) (int64, error) {
	if d == 0 {
		return ms, nil
	}
	return values.TimeoutMS(option, d)
}

// explore begins an exploration and shows it until it has ended.
func (g *Group) explore(ctx context.Context, c *client.Client, ref string, plan api.ExplorePlan, o *options) error {
	x, err := c.Explorations.Begin(ctx, ref, plan)
	if err != nil {
		return err
	}
	if o.detach {
		return g.ShowIDs(x, true, []string{x.ID}, console.Line(x.ID))
	}
	if err := g.follow(ctx, x, o.quiet); err != nil {
		if ctx.Err() != nil {
			return g.interrupted(ctx, x.ID, err)
		}
		return err
	}
	if x, err = g.Current().Explorations.Get(ctx, x.ID); err != nil {
		return err
	}
	return g.result(x, o.quiet)
}

// cancelTimeout is how long an interrupted command waits for the end of its exploration.
const cancelTimeout = 10 * time.Second

// interrupted cancels the exploration of a command that was interrupted.
func (g *Group) interrupted(ctx context.Context, id string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if _, failed := g.Current().Explorations.Cancel(ctx, id); failed != nil {
		return errors.Join(err, failed)
	}
	return err
}

// result prints an exploration that has ended. Without a winner, or with conflicts of its merge, the
// exit code is not 0.
func (g *Group) result(x *api.Exploration, quiet bool) error {
	var ids []string
	if len(x.Winners) > 0 {
		ids = []string{x.Winner}
	}
	if err := g.ShowIDs(x, quiet, ids, func(w io.Writer) error { return writeTable(w, x) }); err != nil {
		return err
	}
	switch {
	case x.State.Final() && x.Error != nil:
		return session.ExitError(x.Error.Code.ExitCode())
	case x.State == api.ExplorationDone && len(x.Winners) == 0:
		return session.ExitError(1)
	case x.Merge != nil && x.Merge.Unresolved() > 0:
		return session.ExitError(api.CodeConflict.ExitCode())
	}
	return nil
}

func (g *Group) lsCommand() *cobra.Command {
	var f api.ExplorationFilter
	var state string
	var quiet bool
	cmd := &cobra.Command{
		Use: "ls [SBX]", Short: "List explorations", Args: cobra.MaximumNArgs(1), ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			if f.State = api.ExplorationState(state); len(args) > 0 {
				f.Sandbox = args[0]
			}
			list, err := c.Explorations.List(ctx, f)
			if err != nil {
				return err
			}
			var rows [][]string
			for i := range list {
				x := &list[i]
				best := ""
				if len(x.Winners) > 0 && x.Winners[0] < len(x.Children) {
					best = scoreText(x.Children[x.Winners[0]].Score)
				}
				rows = append(rows, []string{x.ID, x.Sandbox, string(x.State), strconv.Itoa(len(x.Children)), best, console.Age(x.CreatedAt, time.Now()), commandText(x)})
			}
			ids := console.IDsOf(list, func(x *api.Exploration) string { return x.ID })
			return g.ShowIDs(list, quiet, ids, console.Table([]string{"ID", "SANDBOX", "STATE", "ATTEMPTS", "BEST", "AGE", "COMMAND"}, rows))
		}),
	}
	cmd.Flags().StringVar(&state, "state", "", "only those in this state")
	words := make([]string, len(api.ExplorationStates))
	for i, s := range api.ExplorationStates {
		words[i] = string(s)
	}
	values.CompleteValues(cmd, "state", words...)
	values.QuietVar(cmd.Flags(), &quiet)
	return cmd
}

func (g *Group) showCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use: "show XPL", Short: "Show an exploration with the table of its attempts", Args: cobra.ExactArgs(1),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			get := c.Explorations.Get
			if wait {
				get = c.Explorations.Wait
			}
			x, err := get(ctx, args[0])
			if err != nil {
				return err
			}
			return g.Show(x, func(w io.Writer) error { return writeTable(w, x) })
		}),
	}
	cmd.Flags().BoolVarP(&wait, "wait", "w", false, "wait until it has ended")
	return cmd
}

func (g *Group) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel XPL", Short: "Stop an exploration and destroy its attempts", Args: cobra.ExactArgs(1),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			x, err := c.Explorations.Cancel(ctx, args[0])
			if err != nil {
				return err
			}
			return g.Show(x, console.Line(x.ID+"  "+string(x.State)))
		}),
	}
}

func (g *Group) rmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm XPL…", Short: "Forget explorations", Args: cobra.MinimumNArgs(1),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			for _, id := range args {
				if err := c.Explorations.Remove(ctx, id); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}
