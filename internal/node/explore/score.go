package explore

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"ramet.dev/ramet/api"
)

// outcome is what a command or code left behind, as scores are taken from it.
type outcome struct {
	exitCode       int
	ok, timedOut   bool
	durationMS     float64
	stdout, stderr tail
	value          string          // text of the value of code
	valueJSON      json.RawMessage // of the value of code, if it has one
}

// scorer takes scores from outcomes.
type scorer struct {
	plan    api.ExploreScore
	pattern *regexp.Regexp
	path    api.JSONPath
}

// newScorer returns the scorer of a plan, which is valid.
func newScorer(plan api.ExploreScore) (*scorer, error) {
	s := &scorer{plan: plan}
	var err error
	switch plan.By {
	case api.ScoreRegexp:
		s.pattern, err = regexp.Compile(plan.Pattern)
	case api.ScoreJSON:
		s.path, err = api.ParseJSONPath(plan.Path)
	}
	return s, err
}

// readsFile reports whether the text is that of a file.
func (s *scorer) readsFile() bool { return s.plan.File != "" }

// score returns the score of an outcome. file is the text of the file of the plan, if it names one.
func (s *scorer) score(o *outcome, file string) (float64, error) {
	text := o.stdout.String()
	switch {
	case s.readsFile():
		text = file
	case s.plan.Stderr:
		text = o.stderr.String()
	}
	var score float64
	var err error
	switch s.plan.By {
	case api.ScoreExitCode:
		if o.ok {
			score = 1
		}
	case api.ScoreDuration:
		score = o.durationMS / 1000
	case api.ScoreNumber:
		score, err = number(lastLine(text))
	case api.ScoreRegexp:
		score, err = s.match(text)
	case api.ScoreJSON:
		score, err = s.member(text)
	case api.ScoreValue:
		score, err = valueOf(o)
	default:
		err = fmt.Errorf("%q is no source of scores", s.plan.By)
	}
	if err == nil && (math.IsNaN(score) || math.IsInf(score, 0)) {
		err = fmt.Errorf("%v is no score", score)
	}
	return score, err
}

// good reports whether a score is one of success.
func (s *scorer) good(score float64) bool {
	return (s.plan.AtLeast == nil || score >= *s.plan.AtLeast) && (s.plan.AtMost == nil || score <= *s.plan.AtMost)
}

// better reports whether the score a is better than b.
func (s *scorer) better(a, b float64) bool {
	if s.plan.Goal == api.GoalMin {
		return a < b
	}
	return a > b
}

// match returns the number in the first group of the last match.
func (s *scorer) match(text string) (float64, error) {
	all := s.pattern.FindAllStringSubmatch(text, -1)
	switch {
	case s.pattern.NumSubexp() == 0 && len(all) > 0:
		return 1, nil
	case s.pattern.NumSubexp() == 0:
		return 0, nil
	case len(all) == 0:
		return 0, fmt.Errorf("nothing matches %.100q", s.plan.Pattern)
	}
	return number(all[len(all)-1][1])
}

// member returns the number at the path of the plan in a document of JSON.
func (s *scorer) member(text string) (float64, error) {
	doc, err := lastJSON(text)
	if err != nil {
		return 0, err
	}
	v, err := s.path.In(doc)
	if err != nil {
		return 0, err
	}
	return numberOf(v)
}

// lastJSON reads a text that is a document, or whose lines are others and documents: the last one
// counts.
func lastJSON(text string) (any, error) {
	var doc any
	if json.Unmarshal([]byte(text), &doc) == nil {
		return doc, nil
	}
	for rest := strings.TrimRight(text, " \t\r\n"); rest != ""; {
		cut := strings.LastIndexByte(rest, '\n')
		line := strings.TrimSpace(rest[cut+1:])
		if line != "" && json.Unmarshal([]byte(line), &doc) == nil {
			return doc, nil
		}
		rest = rest[:max(cut, 0)]
	}
	return nil, fmt.Errorf("neither the text nor a line of it is JSON")
}

// valueOf returns the value of code as a number.
func valueOf(o *outcome) (float64, error) {
	if o.valueJSON != nil {
		var v any
		if err := json.Unmarshal(o.valueJSON, &v); err == nil {
			return numberOf(v)
		}
	}
	switch o.value {
	case "":
		return 0, fmt.Errorf("the last line of the code is no expression, or its value is none")
	case "True", "true":
		return 1, nil
	case "False", "false":
		return 0, nil
	}
	return number(o.value)
}

// numberOf returns a value of JSON as a number.
func numberOf(v any) (float64, error) {
	switch v := v.(type) {
	case float64:
		return v, nil
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	case string:
		return number(v)
	}
	return 0, fmt.Errorf("the value is neither a number nor a truth value nor a text with a number")
}

// number reads a number as programs print them. np.float64(1.5) is one, as numpy writes it.
func number(text string) (float64, error) {
	text = strings.TrimSpace(text)
	inner := text
	if open := strings.IndexByte(text, '('); open > 0 && strings.HasSuffix(text, ")") && strings.HasPrefix(text, "np.") {
		inner = text[open+1 : len(text)-1]
	}
	percent := strings.HasSuffix(inner, "%")
	n, err := strconv.ParseFloat(strings.TrimSuffix(inner, "%"), 64)
	if err != nil {
		return 0, fmt.Errorf("%.60q is no number", text)
	}
	if percent {
		n /= 100
	}
	return n, nil
}

// lastLine returns the last line with a text.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// tail keeps the last max bytes of what is written to it. Only its owner uses it.
type tail struct {
	max int
	buf []byte
	cut bool
}

// The bounds of what scores are taken from, in bytes: of one stream, and about of those of all
// attempts that run at once.
const (
	minTail  = 64 << 10
	maxTail  = 1 << 20
	allTails = 64 << 20
)

// Write implements io.Writer. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*t.max { // not with each write: what is kept is moved
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-t.max:]...)
		t.cut = true
	}
	return len(p), nil
}

// String returns the end of the text.
func (t *tail) String() string { s, _ := t.last(t.max); return s }

// last returns the last n bytes, and whether there were more.
func (t *tail) last(n int) (string, bool) {
	b, cut := t.buf, t.cut
	if len(b) > n {
		b, cut = b[len(b)-n:], true
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), cut
}
