package client

import (
	"context"
	"net/url"
	"strconv"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Audit calls each with the entries after since, oldest first, until there are no
// more or it fails.
func (c *Client) Audit(ctx context.Context, since int64, each func(api.AuditEntry) error) error {
	for {
		page, err := get[httpwire.List[api.AuditEntry]](ctx, c, "/v1/audit", url.Values{
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

// VerifyAudit asks whether the audit is as it was written. head is what an earlier
// report said, or empty.
func (c *Client) VerifyAudit(ctx context.Context, head string) (*api.AuditReport, error) {
	query := url.Values{}
	if head != "" {
		query.Set("head", head)
	}
	return get[*api.AuditReport](ctx, c, "/v1/audit/verify", query)
}
