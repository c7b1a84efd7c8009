// Package install tests that package managers work in sandboxes, with real sandboxes and a real
// gateway: apt, pip, npm, go and cargo, from the registries that this machine is set up with and
// from registries of the tests' own on the host's loopback, which stop in the middle of a package.
//
// Where the machine has no registry of a kind, or does not reach it, its tests are skipped, and say
// so. The tools are those of Debian and of this host.
package install
