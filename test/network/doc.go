// Package network tests what sandboxes may reach, with real sandboxes, a real gateway and
// servers on the host.
//
// Its tests run in a network namespace of their own, which has a loopback interface and no
// way out: nothing leaves even where a refusal fails. Addresses that are public elsewhere are
// local there.
package network
