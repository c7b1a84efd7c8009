package explore

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
	"ramet.dev/ramet/internal/cli/session"
)

// drawPause is the shortest time between two drawings.
const drawPause = 100 * time.Millisecond

// follow shows an exploration until it has ended: as a tree that is drawn again and again on a
// terminal, else as a line for each attempt that ends. With JSON or quiet it only waits.
func (g *Group) follow(ctx context.Context, x *api.Exploration, quiet bool) error {
	s := &sight{x: x, changed: make(chan struct{}, 1)}
	switch out, drawn := g.Err.(*os.File); {
	case quiet || g.JSON:
		return g.read(ctx, s, func(string) error { return nil })
	case drawn && console.IsTerminal(g.Err) && os.Getenv("TERM") != "dumb":
		return g.draw(ctx, s, out)
	}
	return g.read(ctx, s, func(line string) error {
		if line == "" {
			return nil
		}
		_, err := fmt.Fprintln(g.Err, line)
		return err
	})
}

// read reads the events of an exploration until it has ended, and calls told with what to say of
// each.
func (g *Group) read(ctx context.Context, s *sight, told func(string) error) error {
	since, final := int64(0), false
	take := func(e api.ExplorationEvent) error {
		since, final = e.Seq, e.State.Final()
		return told(s.take(e))
	}
	for {
		err := g.Current().Explorations.Events(ctx, s.x.ID, since, true, take)
		switch {
		case ctx.Err() != nil:
			return cmp.Or(err, ctx.Err())
		case err == nil || final:
			return nil
		case api.CodeOf(err) != api.CodeUnavailable:
			return err
		}
		// The daemon ends: the next one tells what became of the exploration.
		if _, err := g.Reconnect(ctx, time.Now().Add(session.ReconnectTimeout), err); err != nil {
			return err
		}
	}
}

// draw draws the tree of an exploration on a terminal until it has ended.
func (g *Group) draw(ctx context.Context, s *sight, out *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	ended := make(chan error, 1)
	reader.Go(func() { ended <- g.read(ctx, s, func(string) error { return nil }) })
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, syscall.SIGWINCH)
	defer signal.Stop(sizes)
	screen := &console.Screen{Out: out}
	defer screen.Close()
	for {
		cols, rows := screen.Size()
		if err := screen.Draw(console.Drawing(s.tree(), cols, rows, os.Getenv("NO_COLOR") == "")); err != nil {
			return err
		}
		select {
		case err := <-ended:
			return err
		case <-s.changed:
		case <-sizes:
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(drawPause):
		}
	}
}

// sight is an exploration as its events tell of it. It is safe for concurrent use.
type sight struct {
	changed chan struct{} // has a value after an event

	mu    sync.Mutex
	x     *api.Exploration
	round int // that began last
}

// tree draws what is known.
func (s *sight) tree() []console.Cells {
	s.mu.Lock()
	defer s.mu.Unlock()
	return treeOf(s.x)
}

// take takes an event, and returns what to say of it, if anything.
func (s *sight) take(e api.ExplorationEvent) (line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.x.State = e.State
	switch {
	case e.Attempt != nil:
		a := *e.Attempt
		for len(s.x.Children) <= a.Index {
			s.x.Children = append(s.x.Children, api.Attempt{Index: len(s.x.Children), State: api.AttemptWaiting})
		}
		s.x.Children[a.Index] = a
		switch {
		case a.StoppedEarly && a.State == api.AttemptSucceeded: // the round told who goes on
		case a.State == api.AttemptSucceeded || a.State == api.AttemptFailed || a.State == api.AttemptStopped:
			line = lineOf(&a)
		}
	case e.Round != nil:
		line = s.lineOfRound(e.Round)
	}
	select {
	case s.changed <- struct{}{}:
	default: // a drawing is due already
	}
	return line
}

// lineOfRound tells that a round has begun, and who goes on when it has ended.
func (s *sight) lineOfRound(r *api.ExploreRound) string {
	switch {
	case r.Round > s.round:
		s.round = r.Round
		text := fmt.Sprintf("round %d: %s", r.Round, console.Plural(len(r.Attempts), "attempt", "attempts"))
		if r.Asked > len(r.Attempts) {
			text += fmt.Sprintf(" of %d", r.Asked)
		}
		return text
	case len(r.Survivors) == 0:
		return ""
	case len(r.Survivors) == 1:
		return fmt.Sprintf("round %d: attempt %d goes on", r.Round, r.Survivors[0])
	}
	return fmt.Sprintf("round %d: attempts %s go on", r.Round, numbers(r.Survivors))
}

func numbers(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ", ")
}

// lineOf tells how an attempt has ended.
func lineOf(a *api.Attempt) string {
	text := fmt.Sprintf("attempt %d%s: %s", a.Index, about(a), a.State)
	if a.Score != nil {
		text += ", score " + scoreText(a.Score)
	}
	switch {
	case a.Error != nil:
		text += ": " + a.Error.Error()
	case a.TimedOut:
		text += ", killed at its deadline"
	case a.ExitCode != nil && *a.ExitCode != 0:
		text += fmt.Sprintf(", exit code %d", *a.ExitCode)
	}
	return console.Printable(text)
}

// maxReasons is how many attempts a table gives reasons of.
const maxReasons = 10

// writeReasons tells why attempts failed or were stopped, as far as the table does not.
func writeReasons(w io.Writer, x *api.Exploration) error {
	told, more := 0, 0
	for i := range x.Children {
		a := &x.Children[i]
		reason := ""
		switch {
		case a.Error != nil:
			reason = a.Error.Error()
		case a.State != api.AttemptFailed:
		case a.TimedOut:
			reason = "it was killed at its deadline"
		case a.ExitCode != nil && *a.ExitCode != 0:
			text := strings.TrimSpace(a.Stderr)
			reason = text[strings.LastIndexByte(text, '\n')+1:]
		}
		if reason == "" {
			continue
		}
		if told++; told > maxReasons {
			more++
			continue
		}
		if _, err := fmt.Fprintf(w, "attempt %d: %s\n", a.Index, console.Printable(reason)); err != nil {
			return err
		}
	}
	if more > 0 {
		return console.Line(fmt.Sprintf("… and reasons of %d more, with --json", more))(w)
	}
	return nil
}

// about returns how an attempt differs from others, in brackets.
func about(a *api.Attempt) string {
	if d := difference(a); d != "" {
		return " (" + d + ")"
	}
	return ""
}

// difference returns how an attempt differs from others.
func difference(a *api.Attempt) string {
	var words []string
	if a.Name != "" {
		words = append(words, a.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(a.Env)) {
		words = append(words, k+"="+a.Env[k])
	}
	if len(a.Args) > 0 {
		words = append(words, api.CommandText(a.Args, ""))
	}
	return strings.Join(words, " ")
}

func scoreText(score *float64) string {
	if score == nil {
		return ""
	}
	return strconv.FormatFloat(*score, 'g', 6, 64)
}

func commandText(x *api.Exploration) string { return describe.CommandLine(x.Command) }

// stateColours are the colours of states of attempts.
var stateColours = map[api.AttemptState]string{
	api.AttemptRunning: console.Blue, api.AttemptScoring: console.Cyan, api.AttemptSucceeded: console.Green, api.AttemptFailed: console.Red, api.AttemptStopped: console.Faint,
}

// treeOf draws the attempts below the sandbox, and below the attempts that they are children of.
func treeOf(x *api.Exploration) []console.Cells {
	below := map[int][]int{}
	const top = -1
	for i := range x.Children {
		parent := top
		if p := x.Children[i].Parent; p != nil {
			parent = *p
		}
		below[parent] = append(below[parent], i)
	}
	lines := []console.Cells{{Text: []string{x.Sandbox, string(x.State), "", commandText(x)}, Colours: []string{console.Bold, "", "", console.Faint}}}
	var add func(of int, prefix string)
	add = func(of int, prefix string) {
		for n, i := range below[of] {
			branch, next := "├── ", "│   "
			if n == len(below[of])-1 {
				branch, next = "└── ", "    "
			}
			a := &x.Children[i]
			text := console.Printable(prefix + branch + strconv.Itoa(a.Index) + strings.TrimSuffix(" "+difference(a), " "))
			colour := stateColours[a.State]
			if a.StoppedEarly {
				colour = console.Faint
			}
			lines = append(lines, console.Cells{Text: []string{text, string(a.State), scoreText(a.Score), winning(a)}, Colours: []string{"", colour, "", console.Yellow}})
			add(i, prefix+next)
		}
	}
	add(top, "")
	return lines
}

func winning(a *api.Attempt) string {
	if a.Won {
		return "winner"
	}
	return ""
}

// writeTable prints an exploration as it is now.
func writeTable(w io.Writer, x *api.Exploration) error {
	rows := make([][]string, 0, len(x.Children))
	for i := range x.Children {
		a := &x.Children[i]
		exit, from, took := "", "", ""
		if a.ExitCode != nil {
			exit = strconv.Itoa(*a.ExitCode)
		}
		if a.Parent != nil {
			from = strconv.Itoa(*a.Parent)
		}
		if a.DurationMS > 0 {
			took = console.Millis(a.DurationMS)
		}
		state := string(a.State)
		switch {
		case a.Won:
			state = "winner"
		case a.StoppedEarly && a.State == api.AttemptSucceeded:
			state = "dropped"
		}
		sandbox := ""
		if a.Kept {
			sandbox = a.Sandbox
		}
		rows = append(rows, []string{strconv.Itoa(a.Index), strconv.Itoa(a.Round), from, state, scoreText(a.Score), exit, took, sandbox, difference(a)})
	}
	if err := console.Table([]string{"ATTEMPT", "ROUND", "OF", "STATE", "SCORE", "EXIT", "TIME", "SANDBOX", "VARIANT"}, rows)(w); err != nil {
		return err
	}
	if err := writeReasons(w, x); err != nil {
		return err
	}
	for i := range x.Children {
		if err := writeChanges(w, &x.Children[i]); err != nil {
			return err
		}
	}
	return console.Line(console.Printable(x.ID + "  " + summary(x)))(w)
}

// writeChanges lists the files and variables in which an attempt differs.
func writeChanges(w io.Writer, a *api.Attempt) error {
	for _, c := range a.Diff {
		if _, err := fmt.Fprintf(w, "attempt %d: %s %s\n", a.Index, strings.ToUpper(string(c.Kind[:min(1, len(c.Kind))])), console.PrintablePath(c.Path)); err != nil {
			return err
		}
	}
	for _, v := range a.Variables {
		if _, err := fmt.Fprintf(w, "attempt %d: %s variable %s\n", a.Index, strings.ToUpper(string(v.Kind[:min(1, len(v.Kind))])), console.Printable(v.Name+" = "+v.Repr)); err != nil {
			return err
		}
	}
	if more := a.DiffTotal - len(a.Diff); more > 0 {
		return console.Line(fmt.Sprintf("attempt %d: … and %d more", a.Index, more))(w)
	}
	return nil
}

// summary says in one line what became of an exploration.
func summary(x *api.Exploration) string {
	text := string(x.State)
	if x.Error != nil {
		text += ": " + x.Error.Error()
	} else if x.Ended != "" {
		text += ": " + x.Ended
	}
	switch {
	case len(x.Winners) == 0 && x.State == api.ExplorationDone:
		text += "; no attempt won"
	case x.Promoted:
		text += fmt.Sprintf("; attempt %d was promoted to %s", x.Winners[0], x.Sandbox)
	case x.Merge != nil:
		attempts := "attempts"
		if len(x.Winners) == 1 {
			attempts = "attempt"
		}
		text += fmt.Sprintf("; %s of %s %s merged into %s", console.Plural(len(x.Merge.Applied), "change", "changes"), attempts, numbers(x.Winners), x.Sandbox)
	case len(x.Winners) > 0:
		text += "; the winner is attempt " + strconv.Itoa(x.Winners[0])
	}
	return text
}
