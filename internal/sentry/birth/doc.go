// Package birth finds the place in the start of gVisor's systrap platform at which the zygote waits, and has what a
// process needs there to be one of its own.
//
// It must never know what a sandbox is.
package birth
