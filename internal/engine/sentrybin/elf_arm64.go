package sentrybin

import "embed"

// dir has the programs for the architecture that this one is built for.
const dir = "elf/arm64"

//go:embed all:elf/arm64
var files embed.FS
