// Package guest is one sandbox inside a sentry: a gVisor kernel with its mounts,
// processes and memory, made from an image or from a snapshot.
//
// Lock order:
//
//	Guest.ops        held for reading by operations that use the kernel, for
//	                 writing by those that stop it
//	  Guest.io       held for reading around every access of the host side to guest
//	                 pipes, files and connections, for writing while the kernel is
//	                 being saved
//	    held.mu
//	    table.mu
//	      ring.mu
//	    controller.mu
//
// The package must never know how calls reach it: package sentry decodes them.
package guest
