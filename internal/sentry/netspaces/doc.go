// Package netspaces has the network stacks of a guest: the sandbox's own, and one for each network namespace that
// programs make. gVisor saves neither interfaces nor routes, and gives each namespace of a kernel that was loaded a
// new stack. Here both are described in a save and made again in a load, and the namespaces keep their stacks.
//
// It must never know what a save is for.
package netspaces
