package api

import (
	"cmp"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxAttempts is how many attempts an exploration makes at most, in all rounds.
	MaxAttempts = 10_000
	// MaxRounds is how many rounds an exploration has at most.
	MaxRounds = 32
	// MaxExploreFiles bounds the contents of the files of a plan together, in bytes.
	MaxExploreFiles = 8 << 20

	maxVariantName = 200
	maxWinners     = 100
	maxParts       = 1000 // args, files and variants of a plan
	minFactor      = 1.1
	maxFactor      = 100
)

// Completed returns the plan with the defaults of absent members.
func (p ExplorePlan) Completed() ExplorePlan {
	p.Width = cmp.Or(p.Width, len(p.Variants), 1)
	p.Winners = cmp.Or(p.Winners, 1)
	p.Then = cmp.Or(p.Then, ThenNone)
	if p.Keep == "" {
		if p.Keep = KeepNone; p.Then == ThenNone {
			p.Keep = KeepWinners
		}
	}
	p.Score.By = cmp.Or(p.Score.By, ScoreExitCode)
	if p.Score.Goal == "" {
		if p.Score.Goal = GoalMax; p.Score.By == ScoreDuration {
			p.Score.Goal = GoalMin
		}
	}
	s := &p.Search
	s.Strategy, s.Factor, s.Budget = cmp.Or(s.Strategy, SearchAll), cmp.Or(s.Factor, 2), cmp.Or(s.Budget, 1)
	switch s.Strategy {
	case SearchFirst:
		s.Successes = cmp.Or(s.Successes, p.Winners)
	case SearchHalving:
		s.Survivors = cmp.Or(s.Survivors, p.Winners)
		s.Rounds = cmp.Or(s.Rounds, MaxRounds)
	case SearchBeam:
		s.Survivors = cmp.Or(s.Survivors, 1)
		s.Rounds = cmp.Or(s.Rounds, 2)
		s.Branch = cmp.Or(s.Branch, max(1, p.Width/s.Survivors, len(p.Variants)))
	}
	p.Limits.Attempts = cmp.Or(p.Limits.Attempts, MaxAttempts)
	return p
}

// Valid returns a CodeInvalid error unless the plan can be carried out. Absent members have
// their defaults.
func (p ExplorePlan) Valid() error {
	p = p.Completed()
	if len(p.Variants) > maxParts {
		return Invalid("variants", "%d are more than %d", len(p.Variants), maxParts)
	}
	switch {
	case p.Width < 1 || p.Width > MaxChildren:
		return Invalid("width", "%d is not from 1 to %d", p.Width, MaxChildren)
	case p.Width < len(p.Variants):
		return Invalid("width", "%d attempts are fewer than the %d variants", p.Width, len(p.Variants))
	case p.Winners < 1 || p.Winners > maxWinners:
		return Invalid("winners", "%d is not from 1 to %d", p.Winners, maxWinners)
	case !slices.Contains([]ExploreThen{ThenPromote, ThenMerge, ThenNone}, p.Then):
		return Invalid("then", "%q is not promote, merge or none", p.Then)
	case !slices.Contains([]ExploreKeep{KeepNone, KeepWinners, KeepAll}, p.Keep):
		return Invalid("keep", "%q is not none, winners or all", p.Keep)
	case p.Then == ThenPromote && p.Winners > 1:
		return Invalid("winners", "only one attempt can be promoted, not %d: merge them, or keep them", p.Winners)
	case p.Then == ThenPromote && p.Keep == KeepWinners:
		return Invalid("keep", "the sandbox of the winner is gone when it was promoted: keep none or all")
	case p.Merge != nil && p.Then != ThenMerge:
		return Invalid("merge", "nothing is merged unless then is merge")
	}
	if err := cmp.Or(p.validRuns(), p.Score.valid(p.Run.Code != ""), p.Search.valid(p.Width), p.Limits.valid(&p)); err != nil {
		return err
	}
	if p.Merge != nil {
		if err := ValidTreePaths("merge.paths", p.Merge.Paths); err != nil {
			return err
		}
		switch p.Merge.Strategy {
		case "", MergeLeave, MergeOurs, MergeTheirs, MergeFail:
		default:
			return Invalid("merge.strategy", "%q is not leave, ours, theirs or fail", p.Merge.Strategy)
		}
		for _, pattern := range p.Merge.Exclude {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" || strings.Contains(pattern, "/") {
				return Invalid("merge.exclude", "%q is not a pattern of names, such as *.o", pattern)
			}
		}
	}
	if p.Diff != nil {
		if err := ValidTreePaths("diff.paths", p.Diff.Paths); err != nil {
			return err
		}
		if p.Diff.Processes {
			return Invalid("diff.processes", "the table of an exploration has no processes: compare a sandbox that is kept")
		}
	}
	if (p.Hold != "" || p.Record) && p.Search.Strategy == SearchBeam {
		return Invalid("hold", "requests are held or recorded among the children of one fork, and the rounds of beam are several")
	}
	return cmp.Or(ValidMetadata("metadata", p.Metadata), p.Network.Valid())
}

// validRuns checks what each attempt runs.
func (p *ExplorePlan) validRuns() error {
	size := 0
	if len(p.Variants) == 0 {
		if err := p.Run.valid("run", &size); err != nil {
			return err
		}
	}
	for i := range p.Variants {
		v, field := &p.Variants[i], "variants["+strconv.Itoa(i)+"]"
		if len(v.Name) > maxVariantName {
			return Invalid(field+".name", "%d bytes are more than %d", len(v.Name), maxVariantName)
		}
		run := p.Run.Varied(v)
		if i > 0 {
			run.Files = v.Files // those of the plan were checked with the first variant
		}
		if err := run.valid(field, &size); err != nil {
			return err
		}
	}
	if c := p.Score.Command; c != nil {
		return c.valid("score.command", &size)
	}
	return nil
}

// Varied returns what an attempt with the variant v runs.
func (r ExploreRun) Varied(v *ExploreVariant) ExploreRun {
	if len(v.Argv) > 0 || v.Shell != "" || v.Code != "" {
		r.Argv, r.Shell, r.Code = v.Argv, v.Shell, v.Code
	}
	r.Args = slices.Concat(r.Args, v.Args)
	r.Files = slices.Concat(r.Files, v.Files)
	r.Env = maps.Clone(r.Env)
	if r.Env == nil {
		r.Env = map[string]string{}
	}
	maps.Copy(r.Env, v.Env)
	r.Stdin = cmp.Or(v.Stdin, r.Stdin)
	return r
}

// valid checks what is run, and adds the sizes of files to size.
func (r *ExploreRun) valid(field string, size *int) error {
	given := 0
	for _, set := range []bool{len(r.Argv) > 0, r.Shell != "", r.Code != ""} {
		if set {
			given++
		}
	}
	if given != 1 {
		return Invalid(field, "exactly one of argv, shell and code must be given")
	}
	if r.Code == "" {
		if r.Language != "" || r.Context != "" {
			return Invalid(field+".code", "language and context are for code, and there is a command")
		}
		if err := validCommand(r.Argv, r.Shell, r.Env, r.Cwd, r.User, r.TimeoutMS); err != nil {
			return within(field, err)
		}
	} else {
		switch {
		case r.Cwd != "" || r.User != "" || r.Stdin != "":
			return Invalid(field+".code", "cwd, user and stdin are for commands: code runs where its context runs")
		case !slices.Contains([]string{"", "python", "node", "bash"}, r.Language):
			return Invalid(field+".language", "%q is not python, node or bash", r.Language)
		case r.Context != "" && ValidName("context", r.Context) != nil:
			return within(field, ValidName("context", r.Context))
		}
		if err := cmp.Or(ValidTimeout("timeout_ms", r.TimeoutMS), ValidEnv("env", r.Env)); err != nil {
			return within(field, err)
		}
	}
	if len(r.Args) > maxParts || len(r.Files) > maxParts {
		return Invalid(field, "%d args and %d files: there may be %d of each", len(r.Args), len(r.Files), maxParts)
	}
	for _, a := range r.Args {
		if strings.ContainsRune(a, 0) {
			return Invalid(field+".args", "an argument contains a NUL byte")
		}
	}
	for i := range r.Files {
		f, at := &r.Files[i], field+".files["+strconv.Itoa(i)+"]"
		if !path.IsAbs(f.Path) || strings.ContainsRune(f.Path, 0) {
			return Invalid(at+".path", "%q is not an absolute path", f.Path)
		}
		if f.Text != "" && len(f.Data) > 0 {
			return Invalid(at+".data", "at most one of text and data may be given")
		}
		if _, err := f.FileMode(); err != nil {
			return Invalid(at+".mode", "%q is not an octal number up to 7777", f.Mode)
		}
		if *size += len(f.Text) + len(f.Data); *size > MaxExploreFiles {
			return Invalid(at, "the files of the plan have more than %d bytes together: write them to the sandbox before", MaxExploreFiles)
		}
	}
	return nil
}

// FileMode returns the mode of the file, or nil if there is none.
func (f *ExploreFile) FileMode() (*uint32, error) {
	if f.Mode == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(f.Mode, 8, 12)
	if err != nil {
		return nil, err
	}
	mode := uint32(n)
	return &mode, nil
}

func (s *ExploreScore) valid(code bool) error {
	text := s.Stderr || s.File != ""
	switch s.By {
	case ScoreExitCode, ScoreDuration:
		if text || s.Pattern != "" || s.Path != "" {
			return Invalid("score.by", "%s does not read a text: pattern, path, stderr and file are for regexp, json and number", s.By)
		}
	case ScoreValue:
		if s.Command != nil {
			code = s.Command.Code != ""
		}
		if !code || text {
			return Invalid("score.by", "value is that of code, and a command runs: take number, regexp or json")
		}
	case ScoreNumber:
		if s.Pattern != "" || s.Path != "" {
			return Invalid("score.by", "number is the last line of the text: pattern is for regexp, and path for json")
		}
	case ScoreRegexp:
		if _, err := regexp.Compile(s.Pattern); err != nil || s.Pattern == "" {
			return Invalid("score.pattern", "%q is not a regular expression of RE2, such as accuracy=([0-9.]+)", s.Pattern)
		}
	case ScoreJSON:
		if _, err := ParseJSONPath(s.Path); err != nil {
			return Invalid("score.path", "%v", err)
		}
	default:
		return Invalid("score.by", "%q is not exit_code, number, regexp, json, value or duration", s.By)
	}
	switch {
	case s.Stderr && s.File != "":
		return Invalid("score.file", "the text is that of stderr or of a file, not both")
	case s.File != "" && (!path.IsAbs(s.File) || strings.ContainsRune(s.File, 0)):
		return Invalid("score.file", "%q is not an absolute path", s.File)
	case s.Goal != GoalMax && s.Goal != GoalMin:
		return Invalid("score.goal", "%q is not max or min", s.Goal)
	}
	return nil
}

func (s *ExploreSearch) valid(width int) error {
	switch {
	case !slices.Contains(ExploreStrategies, s.Strategy):
		return Invalid("search.strategy", "%q is not all, first, halving or beam", s.Strategy)
	case s.Successes != 0 && s.Strategy != SearchFirst:
		return Invalid("search.successes", "it is for first, and the strategy is %s", s.Strategy)
	case s.Strategy == SearchFirst && (s.Successes < 1 || s.Successes > width):
		return Invalid("search.successes", "%d is not from 1 to %d, the width", s.Successes, width)
	case (s.Rounds != 0 || s.Survivors != 0) && s.Strategy != SearchHalving && s.Strategy != SearchBeam:
		return Invalid("search.rounds", "rounds and survivors are for halving and beam, and the strategy is %s", s.Strategy)
	case s.Rounds < 0 || s.Rounds > MaxRounds:
		return Invalid("search.rounds", "%d is not from 1 to %d", s.Rounds, MaxRounds)
	case s.Survivors < 0 || s.Survivors > MaxChildren:
		return Invalid("search.survivors", "%d is not from 1 to %d", s.Survivors, MaxChildren)
	case s.Branch != 0 && s.Strategy != SearchBeam:
		return Invalid("search.branch", "it is for beam, and the strategy is %s", s.Strategy)
	case s.Branch < 0 || s.Branch > MaxChildren:
		return Invalid("search.branch", "%d is not from 1 to %d", s.Branch, MaxChildren)
	case !(s.Factor >= minFactor && s.Factor <= maxFactor): // neither is true of NaN
		return Invalid("search.factor", "%v is not from %v to %v", s.Factor, minFactor, maxFactor)
	case !(s.Budget >= 0) || math.IsInf(s.Budget, 0):
		return Invalid("search.budget", "%v is not a number from 0", s.Budget)
	}
	return nil
}

func (l *ExploreLimits) valid(p *ExplorePlan) error {
	switch {
	case l.Parallel < 0 || l.Parallel > MaxChildren:
		return Invalid("limits.parallel", "%d is not from 0 (all) to %d", l.Parallel, MaxChildren)
	case l.MinWidth < 0 || l.MinWidth > p.Width:
		return Invalid("limits.min_width", "%d is not from 0 (a refusal ends the exploration) to %d, the width", l.MinWidth, p.Width)
	case l.Attempts < 1 || l.Attempts > MaxAttempts:
		return Invalid("limits.attempts", "%d is not from 1 to %d", l.Attempts, MaxAttempts)
	case l.Attempts < p.Width:
		return Invalid("limits.attempts", "%d is less than the width, %d", l.Attempts, p.Width)
	case l.Depth < 0 || l.Depth > MaxRounds:
		return Invalid("limits.depth", "%d is not from 0 (no limit) to %d", l.Depth, MaxRounds)
	case l.MemoryMiB < 0 || l.MemoryMiB > maxMiB:
		return Invalid("limits.memory_mib", "%d MiB is not from 0 (no limit) to %d MiB", l.MemoryMiB, maxMiB)
	}
	return ValidTimeout("limits.timeout_ms", l.TimeoutMS)
}

// within returns err, which is about a member, as an error about that member of field.
func within(field string, err error) error {
	e := AsError(err)
	e.Field = field + "." + e.Field
	return e
}
