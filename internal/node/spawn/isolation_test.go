package spawn

import (
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

func TestUnknownLayersAreToldFromThoseThereAre(t *testing.T) {
	err := requireLayers([]string{"foo"}, api.Isolation{CgroupKind: "v2"}, nil)
	if api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), "there are capabilities_dropped, cgroup, empty_root, ") || strings.Contains(err.Error(), "cgroup_kind") {
		t.Errorf("foo: %v", err)
	}
}
