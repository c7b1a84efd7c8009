// Package doctor looks at this machine and says what Ramet can do on it, what it
// cannot, and what to do about that.
//
// A probe tries the thing itself wherever that is possible, because a kernel's
// settings do not tell what a container around us forbids. What cannot be tried
// without harm to the calling process is tried in a child: the same executable
// started with hidden arguments, which main must hand to ChildMain first.
//
// The package changes nothing on the machine and must never decide what follows
// from a finding: starting a sandbox tries everything again and reports its own
// errors.
package doctor
