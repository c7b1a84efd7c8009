package client

import (
	"net/url"
)

// Option changes the scope of a request.
type Option func(url.Values)

// AllTenants is the Option to see the sandboxes, snapshots and images of all tenants, which only
// operators may.
func AllTenants(query url.Values) { query.Set("all_tenants", "true") }

// queryOf returns the query that options make.
func queryOf(opts []Option) url.Values {
	query := url.Values{}
	for _, o := range opts {
		o(query)
	}
	return query
}
