// Package portproxy says what passes between clients and web servers in sandboxes.
//
// A page that a sandbox serves is a stranger's. Browsers keep strangers apart by
// their host names, so each port of each sandbox has a host of its own (Hosts), and a
// browser gets in there by a cookie that is good for this one host (Sessions). What
// would say who the client is never reaches the server (CleanRequest), and what would
// tell a browser something about more than the server's own pages never reaches the
// client (CleanResponse).
//
// The package opens no connections and knows no routes.
package portproxy
