// Package treatment does to requests what the policies of sandboxes say: it is the proxy of the
// gateway, put together from those that know one thing each.
//
//	gateway ── flow ──► sandbox ── rule in force, authority of the tree ──► proxy.Proxy
//	                                                                           │ effects
//	                                        held.Queue ◄── writes, if they are held
//	                                   replay.Recorder ◄── what branches of a fork ask alike
//
//	daemon ── release ──► held.Queue ──► Send: the policy in force judges, the secrets of its
//	                                     registration are put in by name, Reach connects
//
// A request has the rule that is in force when it begins: a secret that is replaced is put into the
// next request, and a connection that goes on costs nothing. A treatment that is replaced cuts its
// flows, which is the gateway's business.
//
// A request that is held has no policy and no secret with it. Whoever releases it says under which
// registration it is sent; without one it is that of its sandbox. So it may be released long after
// its sandbox has ended, and no secret is on disk.
//
// A sandbox whose policy treats nothing costs a pointer.
//
// The package must never know how flows are judged, which sockets there are, or how a daemon speaks
// to the gateway.
package treatment
