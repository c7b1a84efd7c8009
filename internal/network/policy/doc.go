// Package policy judges what a sandbox may reach. A [Spec], which has the document of the
// sandbox, the profiles that it names and the bounds that others set, is compiled once to a
// [Policy], which is immutable and judges connections, names and other sandboxes without
// allocating memory.
//
// # Precedence
//
// Names and addresses are of two classes: single ones, and wildcards and ranges. A single name or
// address decides before a wildcard or range; a longer wildcard before a shorter one, and a longer
// range before a shorter one; a wildcard and a range that disagree deny. Between equally specific
// rules denial wins. Ports do not make a rule more specific. What no rule matches is decided by
// the default of the document.
//
// # Names
//
// A connection goes to an address, and a name rule needs to know which name the guest meant: the
// address must have been given out for the name, and at ports 443 and 80 the server name of TLS
// or the Host of HTTP must be one of those names. Hence a connection is judged twice, before and
// after its first bytes are seen: see [Decision.Host].
//
// A document whose default is allow and that denies names, or restricts requests by its treatments,
// allows by default only addresses that were given out for a name: otherwise an address without a
// name would be the way around.
//
// # Addresses
//
// Some addresses are reached only if a rule names them: see the table in address.go. IPv6
// addresses that embed an IPv4 address are judged as that address.
//
// # Several documents
//
// All bounds of a Spec have to allow what its own document allows, so that a policy is never wider
// than a bound. A document that replaces another one, as of a child that is forked, is compared with
// [Within], which proves that it is not wider or says what it could not prove.
//
// The package must never know sockets, sandboxes, or where documents come from.
package policy
