// Package control has the operations on sandboxes as wholes, and on things beside them:
// snapshots, images, the event log, tokens, tenants and the audit log.
//
// A handler checks the form of a request, calls the service and shapes the answer. It must
// never decide anything that another protocol would have to decide too.
package control
