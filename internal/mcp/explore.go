package mcp

import (
	"context"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
)

type exploreInput struct {
	Sandbox  string    `json:"sandbox" jsonschema:"id or name of the sandbox to fork"`
	Attempts []variant `json:"attempts" jsonschema:"what differs: one child is made for each, up to 100"`
	Command  string    `json:"command,omitempty" jsonschema:"command line that every attempt runs, unless it has one of its own"`
	Code     string    `json:"code,omitempty" jsonschema:"Python that every attempt runs in place of a command, with the variables of the sandbox"`
	Cwd      string    `json:"cwd,omitempty" jsonschema:"absolute path of the directory that commands start in"`
	Score    string    `json:"score,omitempty" enum:"exit_code,number,regexp,json,value,duration" jsonschema:"where the score comes from: exit_code (if absent: 1 if it is 0), number (the last line of the output), regexp or json (in the output, with pattern), value (of the code), duration"`
	Pattern  string    `json:"pattern,omitempty" jsonschema:"regexp: expression whose first group is the number; json: where the number stands, such as metrics.loss"`
	Check    string    `json:"score_command,omitempty" jsonschema:"command line that is run in each attempt afterwards: the score is taken from its output"`
	Goal     string    `json:"goal,omitempty" enum:"max,min" jsonschema:"whether high or low scores are good; max if absent, min by duration"`
	First    bool      `json:"first_success,omitempty" jsonschema:"stop all others as soon as one has succeeded"`
	Then     string    `json:"then,omitempty" enum:"none,promote,merge" jsonschema:"what becomes of the best attempt: none (if absent; it is kept as a sandbox), promote gives its state to the sandbox, merge its files"`
	Timeout  int64     `json:"timeout_s,omitempty" minimum:"0" jsonschema:"of each attempt; 300 if absent"`
}

type variant struct {
	Name    string            `json:"name,omitempty" jsonschema:"how it is called in the table"`
	Command string            `json:"command,omitempty" jsonschema:"in place of the command of all"`
	Code    string            `json:"code,omitempty" jsonschema:"in place of the code of all"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"variables of its command"`
	Files   map[string]string `json:"files,omitempty" jsonschema:"files that it gets before: texts by absolute path"`
}

type exploreOutput struct {
	Exploration string    `json:"exploration" jsonschema:"id of the exploration"`
	State       string    `json:"state" jsonschema:"done, or why it ended"`
	Winner      string    `json:"winner,omitempty" jsonschema:"sandbox of the best attempt; the explored one if it was promoted"`
	Attempts    []attempt `json:"attempts" jsonschema:"the attempts, in order"`
	text        string
}

type attempt struct {
	Index    int      `json:"index" jsonschema:"counted from 0"`
	Name     string   `json:"name,omitempty" jsonschema:"its name"`
	Sandbox  string   `json:"sandbox,omitempty" jsonschema:"its sandbox, if it is kept"`
	State    string   `json:"state" jsonschema:"succeeded, failed or stopped"`
	Won      bool     `json:"won,omitempty" jsonschema:"it is the best"`
	Score    *float64 `json:"score,omitempty" jsonschema:"its score"`
	ExitCode *int     `json:"exit_code,omitempty" jsonschema:"of its command"`
	Output   string   `json:"output,omitempty" jsonschema:"the end of its output"`
	Error    string   `json:"error,omitempty" jsonschema:"why it failed"`
	Changed  int      `json:"changed_files" jsonschema:"how many files it changed"`
}

// Text implements output.
func (o exploreOutput) Text() string { return o.text }

func (s *server) addExplore(to *sdk.Server) {
	add(s, to, "explore", "Try several ways and keep the best",
		"Fork a sandbox once for each attempt, run all at the same time, score them and keep the best: fork, exec, inspect and promote in one call. Use it if each attempt is a command, some code or some files, and its success can be told from an exit code or a number.",
		destroys, explore)
}

// maxOutput is how much of the output of one attempt is answered.
const maxOutput = 1500

func explore(ctx context.Context, c *call, in exploreInput) (out exploreOutput, err error) {
	if len(in.Attempts) == 0 || len(in.Attempts) > 100 {
		return out, api.Invalid("attempts", "there are %d, not 1 to 100", len(in.Attempts))
	}
	plan := in.plan()
	x, err := c.daemon.Explorations.Begin(ctx, in.Sandbox, plan)
	if err != nil {
		return out, err
	}
	ended := 0
	err = c.daemon.Explorations.Events(ctx, x.ID, 0, true, func(e api.ExplorationEvent) error {
		if a := e.Attempt; a != nil && final(a.State) {
			ended++
			c.progress(ctx, float64(ended), float64(len(in.Attempts)), fmt.Sprintf("attempt %d%s: %s", a.Index, named(a.Name), a.State))
		}
		return nil
	})
	if ctx.Err() != nil {
		after, cancel := cleanUp(ctx)
		defer cancel()
		_, _ = c.daemon.Explorations.Cancel(after, x.ID) // it may have ended just now
		return out, ctx.Err()
	}
	if err != nil {
		return out, err
	}
	if x, err = c.daemon.Explorations.Get(ctx, x.ID); err != nil {
		return out, err
	}
	if x.Error != nil && len(x.Children) == 0 {
		return out, x.Error
	}
	return explored(x), nil
}

func final(s api.AttemptState) bool {
	return s == api.AttemptSucceeded || s == api.AttemptFailed || s == api.AttemptStopped
}

// plan returns what the daemon is asked for.
func (in *exploreInput) plan() api.ExplorePlan {
	timeout := in.Timeout
	if timeout == 0 {
		timeout = 300
	}
	plan := api.ExplorePlan{
		Run:      api.ExploreRun{Shell: in.Command, Code: in.Code, Cwd: in.Cwd, TimeoutMS: timeout * 1000},
		Score:    api.ExploreScore{By: api.ExploreBy(in.Score), Goal: api.ExploreGoal(in.Goal)},
		Then:     api.ExploreThen(in.Then),
		Diff:     &api.DiffRequest{},
		Metadata: map[string]string{"client": label},
	}
	if in.Score == "json" {
		plan.Score.Path = in.Pattern
	} else {
		plan.Score.Pattern = in.Pattern
	}
	if in.Check != "" {
		plan.Score.Command = &api.ExploreRun{Shell: in.Check, Cwd: in.Cwd, TimeoutMS: timeout * 1000}
	}
	if in.First {
		plan.Search.Strategy = api.SearchFirst
	}
	for _, v := range in.Attempts {
		w := api.ExploreVariant{Name: v.Name, Shell: v.Command, Code: v.Code, Env: v.Env}
		for path, text := range v.Files {
			w.Files = append(w.Files, api.ExploreFile{Path: path, Text: text})
		}
		plan.Variants = append(plan.Variants, w)
	}
	return plan
}

// explored returns the table of an exploration.
func explored(x *api.Exploration) exploreOutput {
	out := exploreOutput{Exploration: x.ID, State: string(x.State), Winner: x.Winner, Attempts: []attempt{}}
	if x.Promoted {
		out.Winner = x.Sandbox
	}
	most := min(maxOutput, maxText/max(len(x.Children), 1))
	var text []string
	for _, a := range x.Children {
		t := attempt{Index: a.Index, Name: a.Name, State: string(a.State), Won: a.Won, Score: a.Score, ExitCode: a.ExitCode, Changed: max(a.DiffTotal, len(a.Diff))}
		if a.Kept {
			t.Sandbox = a.Sandbox
		}
		if a.Error != nil {
			t.Error = a.Error.Error()
		}
		said := lines(a.Stdout, a.Value, a.Stderr)
		if over := len(said) - most; over > 0 {
			said = "…" + said[over:]
		}
		t.Output = said
		out.Attempts = append(out.Attempts, t)
		line := fmt.Sprintf("attempt %d%s: %s", t.Index, named(t.Name), t.State)
		if t.Score != nil {
			line += fmt.Sprintf(", score %g", *t.Score)
		}
		if t.Won {
			line += ", the best"
		}
		if t.Sandbox != "" {
			line += ", kept as " + t.Sandbox
		}
		text = append(text, line, t.Error, said)
	}
	switch {
	case x.Error != nil:
		text = append(text, "the exploration failed: "+x.Error.Error())
	case out.Winner == "":
		text = append(text, "no attempt succeeded")
	case x.Promoted:
		text = append(text, x.Sandbox+" has the state of the best attempt")
	case x.Merge != nil:
		text = append(text, fmt.Sprintf("%s has the files of the best attempt: %d changed, %d conflicts", x.Sandbox, len(x.Merge.Applied), len(x.Merge.Conflicts)))
	}
	out.text = lines(text...)
	return out
}
