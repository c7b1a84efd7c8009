// Package accounting measures the resources that sandboxes use, books them, and stops
// sandboxes whose processor time is used up.
//
//	Books      the resources that each tenant and each tree has, and those it has used
//	Attendant  looks at all sandboxes every few seconds
//
// It asks no sandbox: the host says what processes used, and files say how large they are.
//
// The package must never know what a quota allows.
package accounting
