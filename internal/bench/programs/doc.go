// Package programs has the programs that people run in sandboxes: a browser at a page, a database under
// load, a virtual machine with many threads, and processes with many objects of one kind. Each is made
// of packages of a distribution, and is started and asked by shell scripts, so that it is the same in a
// sandbox and in a container.
//
// The package must never know how a program is forked, nor what is measured.
package programs
