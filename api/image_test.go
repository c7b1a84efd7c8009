package api

import (
	"strings"
	"testing"
)

func TestImageRequestIsChecked(t *testing.T) {
	for field, req := range map[string]ImageRequest{
		"":       {Ref: "localhost:5000/team/tool:1"},
		"name":   {Path: "/srv/rootfs"},
		"ref":    {Ref: "a b"},
		"build":  {Name: "x"},
		"select": {Name: "x", Ref: "y", Select: "z"},
		"path":   {Name: "x", Path: "srv"},
	} {
		wantField(t, field, field, req.Valid())
	}
	req := ImageRequest{Name: "M M", Ref: "tool"}
	wantField(t, "a wrong name", "name", req.Valid())
}

func TestEventKindsAreNamed(t *testing.T) {
	for _, k := range EventKinds {
		if err := k.Valid("kind"); err != nil {
			t.Error(err)
		}
	}
	err := EventKind("gone").Valid("kind")
	wantField(t, "another kind", "kind", err)
	if err == nil || !strings.Contains(err.Error(), `"gone" is not one of created, forked, `) {
		t.Errorf("the error is %v", err)
	}
}

func TestCommitRequestIsChecked(t *testing.T) {
	for field, config := range map[string]*ImageConfig{
		"": {Env: []string{"A=", "B=x"}, Cwd: "/srv", Labels: map[string]string{"a": "b"}}, "config.env": {Env: []string{"=x"}},
		"config.working_dir": {Cwd: "srv"}, "config": {Cmd: []string{"a\x00b"}},
	} {
		req := CommitRequest{Name: "n", Config: config}
		wantField(t, field, field, req.Valid())
	}
	large := CommitRequest{Name: "n", Config: &ImageConfig{Labels: map[string]string{"a": strings.Repeat("x", maxImageConfig)}}}
	wantField(t, "a large label", "config", large.Valid())
	wantField(t, "no name", "name", (&CommitRequest{}).Valid())
}
