// Package answer writes the answers of requests that fail: problem documents, with the id of
// the request, noted in its audit entry and logged where they are defects of the daemon.
//
// It must never know which route a request has, nor how a success is answered.
package answer
