// Package registries finds out which package registries a system is set up with: a host, or the
// files of an image. It reads the configuration of apt, pip, uv, npm, cargo, go and Maven, and
// where that is silent takes the default that the tool itself has: from its files, or by asking it.
// The result is rules of a network document.
//
// No registry is named in the source: all names come from the system. Of addresses only host and port
// are kept, because the rest may have passwords in it.
//
// A registry may keep its packages on other hosts than its index. [Follow] asks registries for
// those, by the connections of its caller.
//
// The package must never know sandboxes, policies or profiles.
package registries
