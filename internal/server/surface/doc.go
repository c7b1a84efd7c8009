// Package surface keeps the table of all routes of all servers of the daemon, routes.txt: what each demands of its caller,
// and whether a request is written to the audit log.
//
// Its test asks every route with every kind of token, and fails for a route that is not in the table or
// behaves otherwise. A line has the server, the method, the path, what it needs and whether it is audited:
//
//	open       nothing
//	read       a token of scope read, exec or admin; what it does not see does not exist
//	exec       a token of scope exec or admin
//	admin      a token of scope admin
//	operator   a token of that scope, of the tenant default, bound to nothing
//	sandbox    the access token of the sandbox, which is derived from an API key that covers exec
//	volume     the token of the volume, which is derived from an API key that covers admin
//	upload     a signed URL
//	port       the token of the published port
//
// The package must never serve a request.
package surface
