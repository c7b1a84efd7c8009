package api

import "testing"

func TestPullPolicy(t *testing.T) {
	for ref, want := range map[string]PullPolicy{
		"mine": PullNever, "img_qw4xaqongazadbzk": PullNever, "snap_qw4xaqongazadbzk": PullNever, "python": PullMissing, "python:3.12-slim": PullMissing,
		"team/tool": PullMissing, "registry.example.com/team/tool:v1": PullMissing, "tool@sha256:00": PullMissing,
	} {
		req := CreateRequest{Image: ref}
		if got := req.PullPolicy(); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
		req.Pull = PullAlways
		if got := req.ImageRequest(); got.Ref != ref || got.Build != nil || got.IfMissing {
			t.Errorf("%s, always: %+v", ref, got)
		}
	}
	python := CreateRequest{Image: PythonImage}
	if got := python.ImageRequest(); got.Name != PythonImage || got.Build == nil || !got.IfMissing || got.Valid() != nil {
		t.Errorf("python: %+v", got)
	}
	if err := PullPolicy("often").Valid("pull"); CodeOf(err) != CodeInvalid {
		t.Errorf("a policy that is none: %v", err)
	}
}
