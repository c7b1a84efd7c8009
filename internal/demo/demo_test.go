package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/workload/fakedaemon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scores of the plans; "smooth" wins, which no real wave would let it.
var scores = map[string]float64{"mean": 0, "last": -0.5, "line": 0.1, "smooth": 0.75, "fourier": 0.7}

var (
	sampleLine = regexp.MustCompile(`^data\[(\d+)\] \+= (\d+)`)
	finishLine = regexp.MustCompile(`finish\("(\w+)"`)
)

// agent answers as the warm process would.
func agent(b *fakedaemon.Instance, program string) (string, int) {
	v := b.Vars
	value := func(i int) float64 {
		x, err := strconv.ParseFloat(v["data"+strconv.Itoa(i)], 64)
		if err != nil {
			return float64(i) / 8
		}
		return x
	}
	doc := func(m map[string]any) (string, int) {
		text, err := json.Marshal(m)
		if err != nil {
			return err.Error(), 1
		}
		return string(text) + "\n", 0
	}
	switch {
	case strings.HasPrefix(program, "MIB = 256\n"):
		v["file"], v["first"] = noResult, "0.5"
		return doc(map[string]any{"numbers": 256 << 20 / 8, "period": 100.5, "first": 0.5, "pid": 11})
	case finishLine.MatchString(program):
		name := finishLine.FindStringSubmatch(program)[1]
		score := fmt.Sprint(scores[name])
		maps.Copy(v, map[string]string{"plan": name, "score": score, "first": score, "file": name})
		return doc(map[string]any{"plan": name, "score": scores[name], "note": "note of " + name, "pid": 11})
	case sampleLine.MatchString(program):
		m := sampleLine.FindStringSubmatch(program)
		i, _ := strconv.Atoi(m[1])
		add, _ := strconv.Atoi(m[2])
		v["data"+m[1]] = fmt.Sprint(value(i) + float64(add))
		return v["plan"] + " " + v["data"+m[1]] + "\n", 0
	case strings.Contains(program, "data["+strconv.Itoa(firstSample)+":"):
		list := []float64{}
		for i := range manyChildren {
			list = append(list, value(firstSample+i))
		}
		text, err := json.Marshal(list)
		if err != nil {
			return err.Error(), 1
		}
		return string(text), 0
	case strings.Contains(program, "in globals()"):
		return doc(map[string]any{"plan": v["plan"] != "", "first": json.Number(v["first"]), "file": v["file"]})
	}
	return doc(map[string]any{"plan": v["plan"], "score": json.Number(v["score"]), "pid": 11, "first": json.Number(v["first"]), "saved": 1000})
}

func TestStory(t *testing.T) {
	d := fakedaemon.New()
	d.Agent, d.ImageMissing = agent, true
	var out bytes.Buffer
	if err := Run(t.Context(), d.Connect(t), &out, Options{Image: "python"}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text := out.String()
	for _, want := range []string{
		"is built of Debian packages", "download", "seal", "33554432 numbers (256 MiB)", `The best plan is "smooth"`, "note of fourier", "No package was installed",
		"added          8 bytes  /root/smooth.npy", "+new", `plan = "smooth", score = 0.7500 and data[0] = 0.7500`,
		"100 of 100 answers", "All 105 sandboxes were destroyed", "PRIVATE MEMORY PER CHILD",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing says %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	if d.Left() != 0 || d.Most != 105 { // the source, four that were not promoted, and a hundred
		t.Errorf("%d sandboxes are left of at most %d", d.Left(), d.Most)
	}
}

func TestJSON(t *testing.T) {
	d := fakedaemon.New()
	d.Agent = agent
	var out bytes.Buffer
	if err := Run(t.Context(), d.Connect(t), &out, Options{Image: "python", JSON: true}); err != nil {
		t.Fatal(err)
	}
	var r Report
	dec := json.NewDecoder(&out)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil || dec.More() {
		t.Fatalf("%v, or more than one document", err)
	}
	if r.Built || len(r.Steps) != 11 || r.NotInstalled == "" || len(r.Plans) != 5 || len(r.Diff) != 3 || r.Promoted.Plan != "smooth" || r.Answers != 100 {
		t.Errorf("report is %+v", r)
	}
	if len(r.Forks) != 2 || r.Forks[0].N != 5 || r.Forks[1].N != 100 || r.Forks[0].PauseMS != 12.5 || r.Forks[0].PrivateMiB != 7 {
		t.Errorf("table is %+v", r.Forks)
	}
}

func TestKeep(t *testing.T) {
	d := fakedaemon.New()
	d.Agent = agent
	if err := Run(t.Context(), d.Connect(t), new(bytes.Buffer), Options{Image: "python", Keep: true}); err != nil {
		t.Fatal(err)
	}
	if d.Left() != 5 {
		t.Errorf("%d sandboxes are left, not the source and four children", d.Left())
	}
}

// TestNotices has the engine lie at one point of the story each.
func TestNotices(t *testing.T) {
	for name, tc := range map[string]struct {
		step string
		lie  func(d *fakedaemon.Daemon)
	}{
		"a child fails": {"Fork", func(d *fakedaemon.Daemon) {
			d.FailChild = func(i int) *api.Error { return api.Errorf(api.CodeNoMemory, "no memory is left") }
		}},
		"the source has its children's variables": {"Nobody else noticed", lying(func(b *fakedaemon.Instance, program string) {
			if strings.Contains(program, "in globals()") {
				b.Vars["plan"] = "mean"
			}
		})},
		"another process answers": {"Diverge", answering(`"pid":11`, `"pid":12`, "finish(")},
		"another plan was run":    {"Diverge", answering(`"plan":"line"`, `"plan":"mean"`, "finish(")},
		"no JSON":                 {"Diverge", answering(`{`, `<`, "finish(")},
		"the diff lacks a file": {"Compare", func(d *fakedaemon.Daemon) {
			d.DiffFunc = func(context.Context, string, string, api.DiffRequest) (*api.Diff, error) {
				return &api.Diff{}, nil
			}
		}},
		"promote does nothing": {"Promote", func(d *fakedaemon.Daemon) {
			d.PromoteFunc = func(ctx context.Context, ref string) (*api.Sandbox, error) {
				list, err := d.ListFunc(ctx, api.ListFilter{})
				for _, sb := range list {
					if sb.Parent == "" {
						return &sb, err
					}
				}
				return nil, api.NotFound("sandbox", ref)
			}
		}},
		"promote is of another sandbox": {"Promote", func(d *fakedaemon.Daemon) {
			promote := d.PromoteFunc
			d.PromoteFunc = func(ctx context.Context, ref string) (*api.Sandbox, error) {
				sb, err := promote(ctx, ref)
				if err != nil {
					return nil, err
				}
				other := *sb
				other.ID = "sbx_zzzzzzzzzzzzzzzz"
				return &other, nil
			}
		}},
		"a child lacks the winner's state": {"Fork 100", lying(func(b *fakedaemon.Instance, program string) {
			if sampleLine.MatchString(program) && b.Identity.ForkIndex == 57 {
				b.Vars["plan"] = "mean"
			}
		})},
		"a child has another one's sample": {"Fork 100", lying(func(b *fakedaemon.Instance, program string) {
			if sampleLine.MatchString(program) && b.Identity.ForkIndex == 57 {
				b.Vars["data1057"] = "0"
			}
		})},
		"children write to the source": {"Fork 100", func(d *fakedaemon.Daemon) {
			written := false
			lying(func(b *fakedaemon.Instance, program string) {
				written = written || sampleLine.MatchString(program)
				if written && b.Parent == "" {
					b.Vars["data1003"] = "7"
				}
			})(d)
		}},
		"the image has no Python": {"Warm up", func(d *fakedaemon.Daemon) {
			d.Agent = func(*fakedaemon.Instance, string) (string, int) { return "no python3\n", 127 }
		}},
		"an unknown image": {"Image", func(d *fakedaemon.Daemon) {
			d.GetImageFunc = func(_ context.Context, ref string) (*api.Image, error) {
				return nil, api.NotFound("image", ref)
			}
			d.CreateImageFunc = nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := fakedaemon.New()
			d.Agent = agent
			tc.lie(d)
			err := Run(t.Context(), d.Connect(t), new(bytes.Buffer), Options{Image: "python"})
			if err == nil || !strings.HasPrefix(err.Error(), "demo: "+tc.step+": ") {
				t.Errorf("error is %v", err)
			}
			if d.Left() != 0 {
				t.Errorf("%d sandboxes are left", d.Left())
			}
		})
	}
}

// lying has do change a sandbox's memory before the agent answers.
func lying(do func(b *fakedaemon.Instance, program string)) func(*fakedaemon.Daemon) {
	return func(d *fakedaemon.Daemon) {
		d.Agent = func(b *fakedaemon.Instance, program string) (string, int) {
			do(b, program)
			return agent(b, program)
		}
	}
}

// answering changes the answers to some programs.
func answering(from, to, program string) func(*fakedaemon.Daemon) {
	return func(d *fakedaemon.Daemon) {
		d.Agent = func(b *fakedaemon.Instance, p string) (string, int) {
			out, code := agent(b, p)
			if strings.Contains(p, program) && !strings.HasPrefix(p, "MIB") {
				out = strings.Replace(out, from, to, 1)
			}
			return out, code
		}
	}
}

func TestInterrupted(t *testing.T) {
	d := fakedaemon.New()
	ctx, cancel := context.WithCancel(t.Context())
	d.Agent = func(b *fakedaemon.Instance, program string) (string, int) {
		if finishLine.MatchString(program) {
			cancel()
		}
		return agent(b, program)
	}
	err := Run(ctx, d.Connect(t), new(bytes.Buffer), Options{Image: "python"})
	if api.CodeOf(err) != api.CodeCanceled || d.Left() != 0 {
		t.Errorf("%v, %d sandboxes are left", err, d.Left())
	}
}
