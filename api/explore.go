package api

import "time"

// ExplorePlan asks for an exploration: a sandbox is forked into attempts, each runs a command or
// code, the attempts are scored, and the best one is promoted, merged or kept.
type ExplorePlan struct {
	Width    int               `json:"width,omitempty" minimum:"1" maximum:"1000" doc:"attempts of the first round; if absent, the number of variants, or 1"`
	Variants []ExploreVariant  `json:"variants,omitempty" maxItems:"1000" doc:"how attempts differ: they get the variants in order, and the first one again after the last"`
	Run      ExploreRun        `json:"run,omitzero" doc:"what every attempt runs"`
	Score    ExploreScore      `json:"score,omitzero" doc:"how an attempt is scored; by the exit code if absent"`
	Search   ExploreSearch     `json:"search,omitzero" doc:"how many rounds there are, and which attempts are stopped early; one round in which all run to their end if absent"`
	Winners  int               `json:"winners,omitempty" minimum:"1" maximum:"100" doc:"how many of the best attempts win; 1 if absent"`
	Then     ExploreThen       `json:"then,omitempty" doc:"what becomes of the winners: promote gives the state of the first one to the sandbox, merge brings the files of all to it, none changes nothing; none if absent"`
	Merge    *ExploreMerge     `json:"merge,omitempty" doc:"how files are merged, with merge"`
	Keep     ExploreKeep       `json:"keep,omitempty" doc:"which attempts are still there as sandboxes afterwards; the winners if nothing becomes of them, else none. Winners whose merge leaves conflicts are kept in any case. Nothing is kept of an exploration that is canceled, or failed before it had a result"`
	Diff     *DiffRequest      `json:"diff,omitempty" doc:"compare each attempt that has ended by itself with the sandbox; no comparison if absent"`
	Limits   ExploreLimits     `json:"limits,omitzero" doc:"bounds of the exploration"`
	Metadata map[string]string `json:"metadata,omitempty" doc:"labels of the attempts, besides those of the sandbox"`
	// The next ones are those of a fork.
	SecretEnv bool            `json:"secret_env,omitempty" doc:"commands in attempts have the secret variables of the sandbox, too"`
	Network   *NetworkRequest `json:"network,omitempty" doc:"what the attempts may reach: what the sandbox may if absent"`
	Hold      NetworkHold     `json:"hold,omitempty" enum:"writes" doc:"requests of attempts that wait until the attempt is promoted, and are dropped with it; only with one round"`
	Record    bool            `json:"record,omitempty" doc:"the attempts see one world: what the first one was answered is the answer to others that ask the same"`
}

// ExploreRun is what an attempt runs. Exactly one of Argv, Shell and Code is set.
type ExploreRun struct {
	Argv      []string          `json:"argv,omitempty" doc:"program and arguments, without a shell"`
	Shell     string            `json:"shell,omitempty" doc:"run by /bin/sh -c; the args of the attempt are $1, $2 and so on"`
	Code      string            `json:"code,omitempty" doc:"code that an interpreter of the attempt runs, with the variables and modules that it has inherited"`
	Language  string            `json:"language,omitempty" enum:"python,node,bash" doc:"of the code; python if neither it nor a context is given"`
	Context   string            `json:"context,omitempty" doc:"context that runs the code; the default context of the language if absent"`
	Args      []string          `json:"args,omitempty" maxItems:"1000" doc:"arguments after those of argv"`
	Env       map[string]string `json:"env,omitempty" doc:"added to the environment; attempts also have RAMET_ATTEMPT, RAMET_ROUND and RAMET_BUDGET"`
	Files     []ExploreFile     `json:"files,omitempty" maxItems:"1000" doc:"files that are written before the first round of the attempt"`
	Cwd       string            `json:"cwd,omitempty" doc:"absolute path of the directory that a command starts in; the default of the sandbox if absent"`
	User      string            `json:"user,omitempty" doc:"name or uid, optionally :group"`
	Stdin     string            `json:"stdin,omitempty" doc:"text given to a command on standard input"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" minimum:"0" doc:"of each run; 0 is no limit; a run that is killed has failed"`
}

// ExploreVariant is how an attempt differs from others. Its command or code replaces that of the
// plan; its args and files come after those of the plan; its variables replace those of the plan.
type ExploreVariant struct {
	Name  string            `json:"name,omitempty" maxLength:"200" doc:"for people: the attempt is called so in tables"`
	Argv  []string          `json:"argv,omitempty" doc:"instead of the command of the plan"`
	Shell string            `json:"shell,omitempty" doc:"instead of the command of the plan"`
	Code  string            `json:"code,omitempty" doc:"instead of the code of the plan"`
	Args  []string          `json:"args,omitempty" maxItems:"1000" doc:"after the args of the plan"`
	Env   map[string]string `json:"env,omitempty" doc:"added to the environment; the table of the exploration shows it"`
	Files []ExploreFile     `json:"files,omitempty" maxItems:"1000" doc:"written after the files of the plan"`
	Stdin string            `json:"stdin,omitempty" doc:"instead of the text of the plan"`
}

// ExploreFile is a file that an attempt gets. At most one of Text and Data is set.
type ExploreFile struct {
	Path string `json:"path" doc:"absolute path; missing directories above it are made"`
	Text string `json:"text,omitempty" doc:"contents"`
	Data []byte `json:"data,omitempty" doc:"contents in base64, if they are no text"`
	Mode string `json:"mode,omitempty" doc:"octal; 0644 if absent, and that of a file that exists stays"`
}

// ExploreBy is where the score of an attempt comes from.
type ExploreBy string

// The sources of scores.
const (
	ScoreExitCode ExploreBy = "exit_code"
	ScoreNumber   ExploreBy = "number"
	ScoreRegexp   ExploreBy = "regexp"
	ScoreJSON     ExploreBy = "json"
	ScoreValue    ExploreBy = "value"
	ScoreDuration ExploreBy = "duration"
)

// ExploreBys are all sources of scores.
var ExploreBys = []ExploreBy{ScoreExitCode, ScoreNumber, ScoreRegexp, ScoreJSON, ScoreValue, ScoreDuration}

// ExploreGoal is which scores are good ones.
type ExploreGoal string

// The goals.
const (
	GoalMax ExploreGoal = "max"
	GoalMin ExploreGoal = "min"
)

// ExploreScore is how an attempt is scored. An attempt succeeds if it has a score, its run did
// not fail unless Failed allows that, and the score reaches AtLeast and AtMost.
type ExploreScore struct {
	By      ExploreBy   `json:"by,omitempty" doc:"source of the score: exit_code (1 if it is 0, else 0), number (the last line of the text), regexp and json (in the text), value (of the last expression of code) or duration (seconds of the run); exit_code if absent"`
	Pattern string      `json:"pattern,omitempty" maxLength:"10000" doc:"regexp: a regular expression of the syntax RE2. The score is the number in the first group of its last match; without groups, it is 1 if the text matches, else 0"`
	Path    string      `json:"path,omitempty" maxLength:"1000" doc:"json: where the number stands, such as metrics.loss or results[-1].score. Of a text of several lines, the last line that is JSON counts, unless the text as a whole is"`
	Stderr  bool        `json:"stderr,omitempty" doc:"the text is the standard error of the run, not its standard output"`
	File    string      `json:"file,omitempty" doc:"the text is that of this file in the attempt; an absolute path"`
	Command *ExploreRun `json:"command,omitempty" doc:"run in the attempt after its run, with the environment of that: the text and value are those of this command or code. If it fails, the attempt has failed"`
	Goal    ExploreGoal `json:"goal,omitempty" doc:"max if the highest score is the best, min if the lowest is; max if absent, and min by duration"`
	AtLeast *float64    `json:"at_least,omitempty" doc:"an attempt with a lower score has failed"`
	AtMost  *float64    `json:"at_most,omitempty" doc:"an attempt with a higher score has failed"`
	Failed  bool        `json:"failed,omitempty" doc:"attempts whose run fails are scored, too, and may win"`
}

// ExploreStrategy is how an exploration goes on from one attempt to the next.
type ExploreStrategy string

// The strategies.
const (
	SearchAll     ExploreStrategy = "all"
	SearchFirst   ExploreStrategy = "first"
	SearchHalving ExploreStrategy = "halving"
	SearchBeam    ExploreStrategy = "beam"
)

// ExploreStrategies are all strategies.
var ExploreStrategies = []ExploreStrategy{SearchAll, SearchFirst, SearchHalving, SearchBeam}

// ExploreSearch is which attempts run on, and how often.
type ExploreSearch struct {
	Strategy  ExploreStrategy `json:"strategy,omitempty" doc:"all: one round, in which all attempts run to their end. first: one round, which ends as soon as enough attempts have succeeded. halving: after each round the worse attempts are stopped, and the others run again where they are, with a larger budget. beam: after each round the best attempts are forked, and their children run. all if absent"`
	Successes int             `json:"successes,omitempty" minimum:"1" maximum:"1000" doc:"first: how many successes end the round; the number of winners if absent"`
	Rounds    int             `json:"rounds,omitempty" minimum:"1" maximum:"32" doc:"beam: how many rounds there are, 2 if absent. halving: at most so many; until one attempt is left if absent"`
	Survivors int             `json:"survivors,omitempty" minimum:"1" maximum:"1000" doc:"beam: how many attempts of a round are forked, 1 if absent. halving: how many attempts are left at the end at least; the number of winners if absent"`
	Branch    int             `json:"branch,omitempty" minimum:"1" maximum:"1000" doc:"beam: children of each survivor; if absent, so many that a round is as wide as the first one, and at least one of each variant"`
	Factor    float64         `json:"factor,omitempty" minimum:"1.1" maximum:"100" doc:"halving: a round has so many times fewer attempts than the one before, and its budget is so many times larger; 2 if absent"`
	Budget    float64         `json:"budget,omitempty" minimum:"0" doc:"RAMET_BUDGET of the first round, in whatever the command counts; 1 if absent"`
	Target    *float64        `json:"target,omitempty" doc:"the exploration ends as soon as an attempt succeeds with this score or a better one"`
}

// ExploreThen is what becomes of winners.
type ExploreThen string

// What may become of winners.
const (
	ThenPromote ExploreThen = "promote"
	ThenMerge   ExploreThen = "merge"
	ThenNone    ExploreThen = "none"
)

// ExploreKeep is which attempts stay.
type ExploreKeep string

// Which attempts may stay.
const (
	KeepNone    ExploreKeep = "none"
	KeepWinners ExploreKeep = "winners"
	KeepAll     ExploreKeep = "all"
)

// ExploreMerge is how the files of winners are merged.
type ExploreMerge struct {
	Paths    []string      `json:"paths,omitempty" doc:"only these paths and the files below them"`
	Exclude  []string      `json:"exclude,omitempty" maxItems:"100" doc:"patterns of names, as of shells: files and directories with such names are not merged"`
	Strategy MergeStrategy `json:"strategy,omitempty" doc:"treatment of conflicts; leave if absent"`
}

// ExploreLimits bounds an exploration. Zero is no limit.
type ExploreLimits struct {
	Parallel  int   `json:"parallel,omitempty" minimum:"0" maximum:"1000" doc:"attempts whose commands run at once; all if absent"`
	MinWidth  int   `json:"min_width,omitempty" minimum:"0" maximum:"1000" doc:"a round may have as few attempts as this, if a quota or the memory of the host does not allow more; without it, a refusal ends the exploration"`
	Attempts  int   `json:"attempts,omitempty" minimum:"0" maximum:"10000" doc:"attempts in all rounds; 10000 if absent"`
	Depth     int   `json:"depth,omitempty" minimum:"0" maximum:"32" doc:"beam: generations of attempts below the sandbox"`
	TimeoutMS int64 `json:"timeout_ms,omitempty" minimum:"0" doc:"of the exploration: attempts that have not ended by then are stopped, and the others decide"`
	MemoryMiB int64 `json:"memory_mib,omitempty" minimum:"0" maximum:"16777216" doc:"memory of all attempts together, without what they share: beyond it, the attempt of the round that has the most is stopped"`
}

// ExplorationState is the state of an exploration.
type ExplorationState string

// The states of an exploration. The last four are final.
const (
	ExplorationRunning     ExplorationState = "running"
	ExplorationFinishing   ExplorationState = "finishing" // no attempt runs; the winners are promoted or merged, the losers destroyed
	ExplorationDone        ExplorationState = "done"
	ExplorationFailed      ExplorationState = "failed"
	ExplorationCanceled    ExplorationState = "canceled"
	ExplorationInterrupted ExplorationState = "interrupted" // the daemon ended
)

// ExplorationStates are all states.
var ExplorationStates = []ExplorationState{ExplorationRunning, ExplorationFinishing, ExplorationDone, ExplorationFailed, ExplorationCanceled, ExplorationInterrupted}

// Final reports whether an exploration in the state s has ended.
func (s ExplorationState) Final() bool {
	return s != ExplorationRunning && s != ExplorationFinishing
}

// AttemptState is the state of an attempt.
type AttemptState string

// The states of an attempt. An attempt that has succeeded may run again.
const (
	AttemptWaiting   AttemptState = "waiting"
	AttemptRunning   AttemptState = "running"
	AttemptScoring   AttemptState = "scoring"
	AttemptSucceeded AttemptState = "succeeded"
	AttemptFailed    AttemptState = "failed"
	AttemptStopped   AttemptState = "stopped" // before its run had ended
)

// AttemptStates are all states.
var AttemptStates = []AttemptState{AttemptWaiting, AttemptRunning, AttemptScoring, AttemptSucceeded, AttemptFailed, AttemptStopped}

// Exploration is an exploration with the table of its attempts.
type Exploration struct {
	ID       string           `json:"id" doc:"id of the exploration"`
	Sandbox  string           `json:"sandbox" doc:"sandbox that is explored"`
	State    ExplorationState `json:"state" doc:"running, finishing, done, failed, canceled or interrupted"`
	Ended    string           `json:"ended,omitempty" doc:"why no further attempt was made, and how many conflicts the merge of the winners left, which are kept then"`
	Command  string           `json:"command,omitempty" doc:"command or code of the plan, unless it is very long"`
	Strategy ExploreStrategy  `json:"strategy" doc:"strategy of the plan"`
	Goal     ExploreGoal      `json:"goal" doc:"which scores are good ones"`
	Then     ExploreThen      `json:"then" doc:"what becomes of the winners"`
	// Winner is absent as long as there is none.
	Winner   string         `json:"winner,omitempty" doc:"sandbox of the best attempt; if it was promoted, its state is that of the explored sandbox now"`
	Winners  []int          `json:"winners" doc:"indexes of the winners, the best one first"`
	Children []Attempt      `json:"children" doc:"the attempts, in the order of their indexes"`
	Rounds   []ExploreRound `json:"rounds" doc:"the rounds that have begun"`
	Promoted bool           `json:"promoted,omitempty" doc:"the state of the winner is that of the explored sandbox"`
	Merge    *MergeResult   `json:"merge,omitempty" doc:"what the merge of the winners changed"`
	Error    *Error         `json:"error,omitempty" doc:"why it failed; the table has what came before"`

	CreatedAt  time.Time  `json:"created_at" doc:"when it began"`
	EndedAt    *time.Time `json:"ended_at,omitempty" doc:"when it ended"`
	DurationMS float64    `json:"duration_ms,omitempty" doc:"how long it took"`
	Seq        int64      `json:"seq" doc:"number of its last event"`
}

// Attempt is one child of an exploration. A final exploration may have attempts that failed, or
// were stopped, without a sandbox.
type Attempt struct {
	Index   int    `json:"index" doc:"counted from 0, over all rounds"`
	Round   int    `json:"round" doc:"the last round that it ran in, counted from 1"`
	Parent  *int   `json:"parent,omitempty" doc:"index of the attempt that it is a child of; absent if it is a child of the explored sandbox"`
	Sandbox string `json:"sandbox,omitempty" doc:"id of its sandbox, which may be gone; absent if there was none"`
	Kept    bool   `json:"kept,omitempty" doc:"its sandbox is there after the exploration"`

	Name string            `json:"name,omitempty" doc:"name of its variant"`
	Args []string          `json:"args,omitempty" doc:"args of its variant"`
	Env  map[string]string `json:"env,omitempty" doc:"environment of its variant"`

	State        AttemptState     `json:"state" doc:"waiting, running, scoring, succeeded, failed or stopped"`
	Score        *float64         `json:"score,omitempty" doc:"score of its last run; absent if it has none"`
	Won          bool             `json:"won,omitempty" doc:"it is a winner"`
	StoppedEarly bool             `json:"stopped_early,omitempty" doc:"it was stopped, or did not get into the next round"`
	ExitCode     *int             `json:"exit_code,omitempty" doc:"of its last run"`
	TimedOut     bool             `json:"timed_out,omitempty" doc:"its last run was killed at its deadline"`
	Value        string           `json:"value,omitempty" doc:"text of the value of its code"`
	Stdout       string           `json:"stdout" doc:"the end of the standard output of its last run"`
	Stderr       string           `json:"stderr" doc:"the end of the standard error of its last run"`
	Truncated    bool             `json:"truncated,omitempty" doc:"a stream was longer"`
	DurationMS   float64          `json:"duration_ms,omitempty" doc:"how long its last run took"`
	Diff         []Change         `json:"diff,omitzero" doc:"files that differ from those of the explored sandbox, on request; 1000 at most"`
	DiffTotal    int              `json:"diff_total,omitempty" doc:"how many files differ, if not all are listed"`
	Variables    []VariableChange `json:"variables,omitzero" doc:"variables of contexts that differ from those of the explored sandbox, on request; 1000 at most"`
	Error        *Error           `json:"error,omitempty" doc:"why it failed, if its run did not; or why it was stopped"`
}

// ExploreRound is a round of an exploration.
type ExploreRound struct {
	Round     int     `json:"round" doc:"counted from 1"`
	Attempts  []int   `json:"attempts" doc:"indexes of the attempts that run in it"`
	Asked     int     `json:"asked,omitempty" doc:"how many there should have been, if a quota or the memory of the host did not allow them"`
	Budget    float64 `json:"budget" doc:"RAMET_BUDGET"`
	Survivors []int   `json:"survivors" doc:"indexes of the attempts that went on, the best one first"`
	ForkMS    float64 `json:"fork_ms,omitempty" doc:"how long it took to fork the attempts"`
}

// ExplorationEventKind is the kind of an event of an exploration.
type ExplorationEventKind string

// The kinds of events.
const (
	ExplorationChanged ExplorationEventKind = "state"
	AttemptChanged     ExplorationEventKind = "attempt"
	RoundChanged       ExplorationEventKind = "round"
)

// ExplorationEvent is a change of an exploration: of itself, an attempt or a round. It has the new
// state of the thing.
type ExplorationEvent struct {
	Seq     int64                `json:"seq" doc:"number of the event, which grows with every event of the exploration"`
	Time    time.Time            `json:"time" doc:"when it happened"`
	Kind    ExplorationEventKind `json:"kind,omitempty" doc:"state, attempt or round; absent if restarted is set"`
	State   ExplorationState     `json:"state" doc:"state of the exploration"`
	Attempt *Attempt             `json:"attempt,omitempty" doc:"the attempt that changed, without output and comparison"`
	Round   *ExploreRound        `json:"round,omitempty" doc:"the round that began or ended"`
	Ended   string               `json:"ended,omitempty" doc:"why no further attempt was made"`
	Winner  string               `json:"winner,omitempty" doc:"sandbox of the best attempt, once there is one"`
	Error   *Error               `json:"error,omitempty" doc:"why the exploration failed"`
	// Restarted stands for events of an earlier daemon.
	Restarted bool `json:"restarted,omitempty" doc:"the events before this one are of an earlier daemon and not kept: the exploration itself has what they said"`
}

// ExplorationFilter selects explorations.
type ExplorationFilter struct {
	Sandbox string           // id or name of the explored sandbox; empty for all
	State   ExplorationState // empty for all
}
