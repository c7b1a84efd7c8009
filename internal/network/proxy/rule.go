package proxy

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/httprule"
	"ramet.dev/ramet/internal/network/secrets"
)

// Secret is a secret that the value of a treatment's header names.
type Secret struct {
	Name  string
	Value secrets.Value
	// Placeholder is what the guest has in place of the secret, "" if it has nothing.
	Placeholder string
	// Binding says which requests the secret may be put into, whatever a policy says.
	Binding secrets.Binding
}

// Rule is a treatment that can be enforced. It is immutable.
type Rule struct {
	text    string
	refused error // why no request is allowed
	open    bool  // all requests are
	methods httprule.Methods
	paths   httprule.Paths

	headers []header
	masks   []mask
}

// header is what is put into requests.
type header struct {
	name    string // canonical
	set     string // what it is set to
	plain   bool
	secrets []*secret // that are in it
}

// secret is a Secret that can be put in.
type secret struct {
	Secret
	methods httprule.Methods
	paths   httprule.Paths
}

// NewRule refuses a treatment of the names of a pattern that cannot be enforced. given are the
// secrets that it names.
func NewRule(pattern string, t api.NetworkTreatment, given []Secret) (_ *Rule, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("rule of %s: %w", pattern, err)
		}
	}()
	r := &Rule{text: "rules." + pattern}
	if r.methods, err = httprule.ParseMethods(t.Methods); err != nil {
		return nil, err
	}
	if r.paths, err = httprule.ParsePaths(t.Paths); err != nil {
		return nil, err
	}
	if t.Secret != nil && len(t.Secret.Names()) == 0 {
		return nil, errors.New("the value of its header names no secret")
	}
	for _, insert := range t.Inserted() {
		h, err := newHeader(insert, given)
		if err != nil {
			return nil, err
		}
		for _, s := range h.secrets {
			r.masks = append(r.masks, masksOf(&s.Secret)...)
		}
		r.headers = append(r.headers, h)
	}
	return r, nil
}

func newHeader(insert api.NetworkSecret, given []Secret) (header, error) {
	h := header{name: textproto.CanonicalMIMEHeaderKey(insert.Header), plain: insert.Plain}
	// The names are replaced in one pass: a value that looks like a name is no name.
	var pairs []string
	for _, name := range insert.Names() {
		i := slices.IndexFunc(given, func(s Secret) bool { return s.Name == name })
		if i < 0 {
			return header{}, fmt.Errorf("there is no secret %q", name)
		}
		s, err := newSecret(given[i], h.name)
		if err != nil {
			return header{}, fmt.Errorf("secret %q: %w", name, err)
		}
		h.secrets = append(h.secrets, s)
		pairs = append(pairs, "${"+name+"}", s.Value.Reveal())
	}
	h.set = strings.NewReplacer(pairs...).Replace(insert.Value)
	return h, nil
}

// Open returns a rule that allows all requests to the name of a flow. text is how records name it.
func Open(text string) *Rule { return &Rule{text: text, open: true} }

// Closed returns a rule that allows no request.
func Closed(text string, why error) *Rule { return &Rule{text: text, refused: why} }

func newSecret(given Secret, header string) (*secret, error) {
	s := &secret{Secret: given}
	switch {
	case s.Value.IsZero():
		return nil, errors.New("it has no value")
	case s.Binding.Header != secrets.Any && !strings.EqualFold(s.Binding.Header, header):
		return nil, fmt.Errorf("it is bound to header %s, not to %s", s.Binding.Header, header)
	case len(s.Binding.Names) == 0:
		return nil, errors.New("it is bound to no name")
	case s.Placeholder != "" && !secrets.IsPlaceholder(s.Placeholder):
		return nil, errors.New("its placeholder is not one of ours")
	}
	var err error
	if s.methods, err = httprule.ParseMethods(given.Binding.Methods); err != nil {
		return nil, err
	}
	if s.paths, err = httprule.ParsePaths(given.Binding.Paths); err != nil {
		return nil, err
	}
	return s, nil
}

// String names the rule in logs and in answers.
func (r *Rule) String() string { return r.text }

// GoString is String.
func (r *Rule) GoString() string { return r.String() }

// Check returns why a request is not allowed, or nil.
func (r *Rule) Check(req *http.Request) error {
	if r.refused != nil {
		return r.refused
	}
	for _, m := range httprule.EffectiveMethods(req.Method, req.URL.RawQuery, req.Header) {
		if !r.methods.Match(m) {
			return fmt.Errorf("method %q is not among %s", m, strings.Join(r.methods, ", "))
		}
	}
	if len(r.paths) == 0 {
		return nil
	}
	if name := httprule.OverridesPath(req.Header); name != "" {
		return fmt.Errorf("header %s would make another path of it", name)
	}
	path, err := httprule.Canonical(req.URL.EscapedPath())
	if err != nil {
		return err
	}
	if !r.paths.Match(path) {
		return fmt.Errorf("path %q is not among those that are allowed", path)
	}
	return nil
}

// upgrades reports whether a connection may become one of another protocol: a WebSocket, and for an open
// rule all but HTTP, in TLS or not, which would carry requests that nobody examines.
func (r *Rule) upgrades(to string) bool {
	if !r.open {
		return strings.EqualFold(to, "websocket")
	}
	for protocol := range strings.SplitSeq(strings.ToLower(to), ",") {
		protocol = strings.TrimSpace(protocol)
		if strings.HasPrefix(protocol, "h2") || strings.HasPrefix(protocol, "http") || strings.HasPrefix(protocol, "tls") {
			return false
		}
	}
	return true
}

// insertion is what was put into a request.
type insertion struct {
	names []string // of secrets
	masks []mask   // of forms that only this request has
}

// insert puts headers into a request to a name. h is the header of req, and may be changed.
func (r *Rule) insert(name string, tls bool, req *http.Request, h http.Header) (in insertion) {
	for i := range r.headers {
		if tls || r.headers[i].plain {
			r.headers[i].insert(name, tls, req, h, &in)
		}
	}
	return in
}

// insert puts one header into a request: secrets in place of their placeholders, or else the whole of it if
// the request may have all of its secrets.
func (p *header) insert(name string, tls bool, req *http.Request, h http.Header, in *insertion) {
	bound := make([]bool, len(p.secrets))
	var names []string
	for i, s := range p.secrets {
		bound[i] = (tls || s.Binding.Plain) && s.isFor(name, req)
		if bound[i] && s.replaceAll(h[p.name]) {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 && !slices.Contains(bound, false) {
		h[p.name] = []string{p.set}
		for _, s := range p.secrets {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	in.names = append(in.names, names...)
	for _, v := range h[p.name] {
		if credentials, ok := cutBasic(v); ok && len(credentials) >= minMask {
			in.masks = append(in.masks, newMask(credentials))
		}
	}
}

// isFor reports whether the secret may be put into a request to a name.
func (s *secret) isFor(name string, req *http.Request) bool {
	if !slices.Contains(s.Binding.Names, name) && !slices.Contains(s.Binding.Names, secrets.Any) {
		return false
	}
	for _, m := range httprule.EffectiveMethods(req.Method, req.URL.RawQuery, req.Header) {
		if !s.methods.Match(m) {
			return false
		}
	}
	if len(s.paths) == 0 {
		return true
	}
	path, err := httprule.Canonical(req.URL.EscapedPath())
	return err == nil && httprule.OverridesPath(req.Header) == "" && s.paths.Match(path)
}

// replaceAll puts the secret in place of its placeholder, and reports whether that was there.
func (s *secret) replaceAll(values []string) bool {
	if s.Placeholder == "" {
		return false
	}
	replaced := false
	for i, v := range values {
		if with, ok := s.replace(v); ok {
			values[i], replaced = with, true
		}
	}
	return replaced
}

// replace returns a value of the header with the secret in place of the placeholder, and
// whether that was there.
func (s *secret) replace(v string) (string, bool) {
	if strings.Contains(v, s.Placeholder) {
		return strings.ReplaceAll(v, s.Placeholder, s.Value.Reveal()), true
	}
	encoded, ok := cutBasic(v)
	if !ok {
		return v, false
	}
	credentials, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !strings.Contains(string(credentials), s.Placeholder) {
		return v, false
	}
	with := strings.ReplaceAll(string(credentials), s.Placeholder, s.Value.Reveal())
	return v[:len(basic)] + base64.StdEncoding.EncodeToString([]byte(with)), true
}

// basic is the scheme of credentials that hide a placeholder in base64: those of git, and
// of package managers.
const basic = "basic "

// cutBasic returns the encoded credentials of a value with that scheme.
func cutBasic(v string) (encoded string, ok bool) {
	if len(v) < len(basic) || !strings.EqualFold(v[:len(basic)], basic) {
		return "", false
	}
	return strings.TrimSpace(v[len(basic):]), true
}

// masksOf returns what of a secret is masked in answers: its value as it is, and as texts
// of JSON and of URLs write it. What is too short stands in too many answers by chance.
func masksOf(s *Secret) []mask {
	value := s.Value.Reveal()
	forms := []string{value}
	if quoted, err := json.Marshal(value); err == nil { // a string always can be
		forms = append(forms, string(quoted[1:len(quoted)-1]))
	}
	forms = append(forms, url.QueryEscape(value), url.PathEscape(value))
	var masks []mask
	seen := map[string]bool{}
	for i, f := range forms {
		if seen[f] || len(f) < minMask {
			continue
		}
		seen[f] = true
		m := newMask(f)
		if i == 0 && s.Placeholder != "" {
			m.header = s.Placeholder
		}
		masks = append(masks, m)
	}
	return masks
}
