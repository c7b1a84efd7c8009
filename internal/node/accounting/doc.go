// Package accounting finds out what sandboxes use, books it, and stops those whose processor
// time is used up.
//
//	Books      what each tenant and each tree has, and what they have used
//	Attendant  looks at all sandboxes every few seconds
//
// It asks no sandbox: the host says what processes used, and files say how large they are.
//
// The package must never know what a quota allows.
package accounting
