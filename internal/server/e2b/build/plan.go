package build

import (
	"strings"

	"ramet.dev/ramet/api"
)

// Plan is how a template is made.
type Plan struct {
	FromImage    string `json:"fromImage"`
	FromTemplate string `json:"fromTemplate"`
	Registry     any    `json:"fromImageRegistry"`
	Steps        []Step `json:"steps"`
	Start        string `json:"startCmd"`
	Ready        string `json:"readyCmd"`
}

// Step is an instruction.
type Step struct {
	Type string   `json:"type"`
	Args []string `json:"args"`
	Hash string   `json:"filesHash"`
}

// maxSteps bounds a plan.
const maxSteps = 500

// arguments are how many an instruction has at least.
var arguments = map[string]int{"RUN": 1, "COPY": 2, "ENV": 2, "WORKDIR": 1, "USER": 1}

// valid returns an error unless the plan can be carried out.
func (p *Plan) valid() error {
	switch {
	case p.Registry != nil:
		return api.Errorf(api.CodeUnsupported, "fromImageRegistry: log in to the registry on the host, or pull the image with 'ramet image pull'")
	case len(p.Steps) > maxSteps:
		return api.Invalid("steps", "there are %d, more than %d", len(p.Steps), maxSteps)
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		s.Type = strings.ToUpper(s.Type)
		least, known := arguments[s.Type]
		switch {
		case !known:
			return api.Invalid("steps", "step %d: %.40q is not COPY, ENV, RUN, USER or WORKDIR", i+1, s.Type)
		case len(s.Args) < least:
			return api.Invalid("steps", "step %d: %s has %d arguments, not %d", i+1, s.Type, len(s.Args), least)
		case s.Type == "ENV" && len(s.Args)%2 != 0:
			return api.Invalid("steps", "step %d: ENV has names and values", i+1)
		}
	}
	return nil
}
