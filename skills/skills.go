package skills

import _ "embed"

// Ramet is the SKILL.md of the skill "ramet".
//
//go:embed ramet/SKILL.md
var Ramet string
