package values

import (
	"strings"

	"ramet.dev/ramet/api"
)

// ParseVolumes parses volumes of a sandbox, NAME:PATH or NAME:PATH:ro. api judges the rest.
func ParseVolumes(option string, texts []string) ([]api.VolumeMount, error) {
	var all []api.VolumeMount
	for _, text := range texts {
		name, rest, found := strings.Cut(text, ":")
		if !found || name == "" || rest == "" {
			return nil, api.Invalid(option, "%q is not NAME:PATH or NAME:PATH:ro", text)
		}
		m := api.VolumeMount{Volume: name, Path: rest}
		m.Path, m.ReadOnly = strings.CutSuffix(rest, ":ro")
		m.Path = strings.TrimSuffix(m.Path, ":rw")
		all = append(all, m)
	}
	return all, nil
}
