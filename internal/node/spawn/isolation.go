package spawn

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
)

// requireLayers returns a CodeIsolation error if a layer in require is not on.
func requireLayers(require []string, iso api.Isolation, missing map[string]string) error {
	if len(require) == 0 {
		return nil
	}
	layers, err := layersOf(iso)
	if err != nil {
		return err
	}
	for _, name := range require {
		state, ok := layers[name]
		if !ok {
			return api.Invalid("require", "%q is no isolation layer: there are %s", name, strings.Join(slices.Sorted(maps.Keys(layers)), ", "))
		}
		if state != string(api.LayerOn) {
			reason := missing[name]
			if reason == "" {
				reason = "it is off"
			}
			return api.Errorf(api.CodeIsolation, "isolation layer %s was required and cannot be had: %s", name, reason)
		}
	}
	return nil
}

// layersOf returns the layers by their JSON names.
func layersOf(iso api.Isolation) (map[string]string, error) {
	data, err := json.Marshal(iso)
	if err != nil {
		return nil, fmt.Errorf("list isolation layers: %w", err)
	}
	var layers map[string]string
	if err := json.Unmarshal(data, &layers); err != nil {
		return nil, fmt.Errorf("list isolation layers: %w", err)
	}
	delete(layers, "cgroup_kind")
	delete(layers, "memory_limit")
	return layers, nil
}
