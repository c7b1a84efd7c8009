package client

import (
	"context"
	"net/url"
	"strconv"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Audit reads the audit log.
type Audit struct{ conn *connection }

// Entries calls each with the entries after the one with the number since, the oldest
// first, until there are no more or each fails.
func (s *Audit) Entries(ctx context.Context, since int64, each func(api.AuditEntry) error) error {
	for {
		page, err := get[httpwire.List[api.AuditEntry]](ctx, s.conn, "/v1/audit", url.Values{
			"since": {strconv.FormatInt(since, 10)}, "limit": {strconv.Itoa(pageSize)},
		})
		if err != nil {
			return err
		}
		for _, e := range page.Items {
			if err := each(e); err != nil {
				return err
			}
			since = e.Seq
		}
		if len(page.Items) < pageSize {
			return nil
		}
	}
}

// Verify checks that the audit log is unchanged. head is the Head of an earlier report, or
// empty: its line must still exist.
func (s *Audit) Verify(ctx context.Context, head string) (*api.AuditReport, error) {
	query := url.Values{}
	if head != "" {
		query.Set("head", head)
	}
	return get[*api.AuditReport](ctx, s.conn, "/v1/audit/verify", query)
}
