// Package work is ordinary work of developers: a script of eleven pieces, such as spawns, a build, a
// commit and a test run. It can run the script without a sandbox, in a root directory of the host.
//
// It must never know what the times are compared with.
package work
