package sentrybin

import "embed"

// dir has the programs for the architecture that this one is built for.
const dir = "elf/amd64"

//go:embed all:elf/amd64
var files embed.FS
