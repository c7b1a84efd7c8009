package client

import "net/http"

// SetTransport replaces what c sends requests with.
func SetTransport(c *Client, t http.RoundTripper) { c.conn.http.Transport = t }
