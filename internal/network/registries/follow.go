package registries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

const (
	// followTime bounds how long one registry is waited for.
	followTime = 10 * time.Second
	// maxPage bounds what of its answer is read.
	maxPage = 16 << 20
)

// Follow asks the registries of res where they keep packages, and adds those hosts. Hosts that a
// registry names may be at private addresses only if they are of its own domain: it could name
// anything. A registry that does not answer is a problem of the result.
func Follow(ctx context.Context, client *http.Client, res *Result) {
	asked := map[string]bool{}
	for _, r := range res.Registries {
		page, hosts := pageOf(r)
		if page == nil || asked[page.String()] {
			continue
		}
		asked[page.String()] = true
		addresses, err := followOne(ctx, client, page, hosts)
		if err != nil {
			res.Problems = append(res.Problems, fmt.Sprintf("%s: %v", r, err))
			continue
		}
		res.add(r, addresses)
	}
}

// pageOf returns the page of a registry that names other hosts, and which addresses in it do. The
// page is nil if registries of the tool have none.
func pageOf(r Registry) (*url.URL, func([]byte) []string) {
	switch r.Tool {
	case "pip":
		return r.address.JoinPath("pip/"), pipLinks
	case "npm":
		return r.address.JoinPath("npm", "latest"), npmTarball
	case "cargo":
		return r.address.JoinPath("config.json"), cargoDownloads
	}
	return nil, nil
}

// add adds the hosts of addresses that a registry named.
func (res *Result) add(by Registry, addresses []string) {
	c := &collector{System: &System{Name: by.Host}, tool: by.Tool, res: res}
	known := map[string]bool{}
	for _, r := range res.Registries {
		known[r.Host+" "+fmt.Sprint(r.Port)] = true
	}
	for _, a := range addresses {
		r, err := c.registry("index", a)
		if err != nil || r == nil {
			continue
		}
		r.Private, r.address = sameDomain(by.Host, r.Host), &url.URL{}
		if key := r.Host + " " + fmt.Sprint(r.Port); !known[key] && !isAddress(r.Host) {
			known[key] = true
			r.Tool += " files"
			res.Registries = append(res.Registries, *r)
		}
	}
}

// isAddress reports whether a host is an IP address.
func isAddress(host string) bool {
	return strings.Trim(host, "0123456789.") == "" || strings.Contains(host, ":")
}

// sameDomain reports whether two names are of one domain, which has at least two labels.
func sameDomain(a, b string) bool {
	_, domain, _ := strings.Cut(a, ".")
	return a == b || strings.Contains(domain, ".") && strings.HasSuffix(b, "."+domain)
}

// followOne returns the addresses in a page, and that which it was redirected to.
func followOne(ctx context.Context, client *http.Client, page *url.URL, addresses func([]byte) []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, followTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page.String(), nil)
	if err != nil {
		return nil, errors.New("it has no address that could be asked")
	}
	req.Header.Set("Accept", "application/vnd.pypi.simple.v1+json, application/json;q=0.9, text/html;q=0.5")
	resp, err := client.Do(req)
	if err != nil {
		var u *url.Error // has the address in its text
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, fmt.Errorf("ask where packages are: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil, nil // no index, but the files of one, or without the package that is looked for
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask where packages are: status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return nil, fmt.Errorf("read where packages are: %w", err)
	}
	return append(addresses(body), resp.Request.URL.String()), nil
}

// pipLink is a link of a page of PEP 503, or an address of one of PEP 691.
var pipLink = regexp.MustCompile(`(?:href\s*=\s*["']|"url"\s*:\s*")(https?://[^"'#<>\s]+)`)

// pipLinks returns the hosts of the files of a page, once each.
func pipLinks(page []byte) []string {
	var out []string
	seen := map[string]bool{}
	for _, m := range pipLink.FindAllSubmatch(page, -1) {
		u, err := url.Parse(string(m[1]))
		if err != nil || seen[u.Host] {
			continue
		}
		seen[u.Host] = true
		out = append(out, u.Scheme+"://"+u.Host)
	}
	return out
}

// npmTarball returns the address of the archive of a package.
func npmTarball(page []byte) []string {
	var p struct {
		Dist struct{ Tarball string }
	}
	if json.Unmarshal(page, &p) != nil {
		return nil
	}
	return []string{p.Dist.Tarball}
}

// cargoDownloads returns the addresses in the configuration of an index.
func cargoDownloads(page []byte) []string {
	var p struct{ DL, API string }
	if json.Unmarshal(page, &p) != nil {
		return nil
	}
	before, _, _ := strings.Cut(p.DL, "{") // what follows depends on the package
	return []string{before, p.API}
}
