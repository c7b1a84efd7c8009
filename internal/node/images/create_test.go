package images

import (
	"testing"

	"ramet.dev/ramet/api"
)

func TestSourceOfAnImage(t *testing.T) {
	for want, req := range map[string]api.ImageBuild{
		"debian":                       {From: "debian"},
		"debian bookworm":              {From: "debian", Suite: "bookworm"},
		"debian python3 python3-numpy": {From: "debian", Include: []string{"python3", "python3-numpy"}},
		"debian bookworm python3":      {From: "debian", Suite: "bookworm", Include: []string{"python3"}},
	} {
		if got := describeBuild(&req); got != want {
			t.Errorf("the source of %+v is %q, not %q", req, got, want)
		}
	}
}
