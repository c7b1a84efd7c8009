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
