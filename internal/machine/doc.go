// Package machine puts together what one machine offers to servers: the node, the tokens,
// the audit and the answers to requests that may come again, above one store of records.
//
// It only composes: it never serves a protocol, and knows no operation.
package machine
