// Package trust has sandboxes with a network trust authorities besides those of their image: the
// host's own, such as that of a proxy that inspects TLS, and that of the sandbox's tree, with which
// the gateway ends TLS itself.
//
//	bundle of the host ──┐
//	                     ├─► authorities that the guest lacks ─► plan of truststore
//	files of the guest ──┤                                          │
//	authority of tree ───┘                                          │
//	                                              one archive, unpacked by the sentry,
//	                                              and variables of the environment
//
// The files of an image are looked at once for all sandboxes that are made of it: what is to be
// done is kept. A sandbox that gets its first network later is looked at as it is. What is loaded from
// a frozen state has the files of that: where its network needs more than the state had, the files of
// the state are looked at once, and each sandbox is completed when it is loaded.
//
// The package must never know what a sandbox may reach, nor how it is made.
package trust
