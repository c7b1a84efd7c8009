// Package portproxy has the rules for requests between clients and web servers in sandboxes.
//
// The pages of a sandbox are not trusted. Browsers isolate pages by their host names, so each
// port of each sandbox has a host of its own (Hosts), and a browser is admitted there by a
// cookie that is valid for this host only (Sessions). Header fields that identify the client
// never reach the server (CleanRequest). Header fields that affect more in a browser than the
// server's own pages never reach the client (CleanResponse).
//
// The package opens no connections and knows no routes.
package portproxy
