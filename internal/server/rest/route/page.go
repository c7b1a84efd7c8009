package route

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// PageInput selects a page of a list. It is exported for the same reason as
// IDInput.
type PageInput struct {
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"items on a page"`
	PageToken string `query:"page_token" maxLength:"128" doc:"next_page_token of the page before"`
	after     PageKey
}

// Resolve reads the token; the framework calls it before the handler.
func (p *PageInput) Resolve(huma.Context) []error {
	if p.PageToken == "" {
		return nil
	}
	var ok bool
	if p.after, ok = parseToken(p.PageToken); !ok {
		return []error{&huma.ErrorDetail{Location: "query.page_token", Message: "not a token that a list returned"}}
	}
	return nil
}

// PageKey orders a list, oldest first, and is the content of a page token. A page begins after
// a key and not at a number, so that removals between two calls skip nothing.
type PageKey struct {
	created int64 // nanoseconds
	id      string
}

func KeyOf(created time.Time, id string) PageKey { return PageKey{created.UnixNano(), id} }

func (k PageKey) compare(o PageKey) int {
	return cmp.Or(cmp.Compare(k.created, o.created), strings.Compare(k.id, o.id))
}

func (k PageKey) token() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(k.created, 10) + "." + k.id))
}

func parseToken(token string) (k PageKey, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return k, false
	}
	nanos, id, _ := strings.Cut(string(raw), ".")
	n, err := strconv.ParseInt(nanos, 10, 64)
	known := api.IsID(api.KindSandbox, id) || api.IsID(api.KindSnapshot, id) || api.IsID(api.KindImage, id) || api.IsID(api.KindToken, id) || api.IsID(api.KindExploration, id)
	return PageKey{n, id}, err == nil && known
}

// PageOf returns the page of items that in asks for. Items may be large and many, so
// only their keys are sorted.
func PageOf[T any](items []T, in PageInput, key func(*T) PageKey) *Out[httpwire.List[T]] {
	type place struct {
		PageKey
		index int
	}
	order := make([]place, len(items))
	for i := range items {
		order[i] = place{key(&items[i]), i}
	}
	slices.SortFunc(order, func(a, b place) int { return a.compare(b.PageKey) })
	if in.PageToken != "" {
		i, found := slices.BinarySearchFunc(order, in.after, func(p place, k PageKey) int { return p.compare(k) })
		if found {
			i++
		}
		order = order[i:]
	}
	page := &Out[httpwire.List[T]]{}
	if len(order) > in.Limit {
		order = order[:in.Limit]
		page.Body.NextPageToken = order[in.Limit-1].token()
	}
	page.Body.Items = make([]T, len(order))
	for i, p := range order {
		page.Body.Items[i] = items[p.index]
	}
	return page
}
