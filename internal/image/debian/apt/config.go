package apt

import (
	"net/http"
	"net/url"
	"path/filepath"
	"sort"
	"strings"

	"ramet.dev/ramet/internal/image/debian/bounded"
)

// Config holds the scalar settings of the host's apt configuration under
// lower-case names such as "acquire::http::proxy".
type Config map[string]string

// ReadConfig reads apt.conf.d and apt.conf below root, later files winning,
// as apt does. Files that cannot be read are ignored: without them apt's
// defaults hold.
func ReadConfig(root string) Config {
	conf := Config{}
	files, _ := filepath.Glob(filepath.Join(root, "etc/apt/apt.conf.d/*"))
	sort.Strings(files)
	for _, f := range files {
		if ext := filepath.Ext(f); ext == "" || ext == ".conf" {
			conf.readFile(f)
		}
	}
	conf.readFile(filepath.Join(root, "etc/apt/apt.conf"))
	return conf
}

func (c Config) readFile(path string) {
	if data, err := bounded.ReadFile(path); err == nil {
		c.parse(string(data))
	}
}

// parse reads both forms, `A::B "v";` and `A { B "v"; };`. Text it does not
// understand is skipped: only proxies and date checks are ever looked up.
func (c Config) parse(text string) {
	var scope []string // names of the open braces
	var words []string // words of the statement being read
	for text != "" {
		var tok string
		tok, text = aptToken(text)
		switch tok {
		case "":
		case "{":
			scope = append(scope, strings.Join(words, ""))
			words = nil
		case "}":
			if len(scope) > 0 {
				scope = scope[:len(scope)-1]
			}
			words = nil
		case ";":
			if len(words) >= 2 {
				path := append(append([]string{}, scope...), words[0])
				c[strings.ToLower(strings.Join(path, "::"))] = words[1]
			}
			words = nil
		default:
			words = append(words, strings.Trim(tok, `"`))
		}
	}
}

// aptToken returns the next word, quoted string or punctuation mark, or ""
// where it skipped a comment.
func aptToken(s string) (tok, rest string) {
	s = strings.TrimLeft(s, " \t\r\n")
	switch {
	case s == "":
		return "", ""
	case strings.HasPrefix(s, "//"), s[0] == '#':
		_, rest, _ = strings.Cut(s, "\n")
		return "", rest
	case strings.HasPrefix(s, "/*"):
		_, rest, _ = strings.Cut(s, "*/")
		return "", rest
	case strings.IndexByte("{};", s[0]) >= 0:
		return s[:1], s[1:]
	case s[0] == '"':
		if i := strings.IndexByte(s[1:], '"'); i >= 0 {
			return s[:i+2], s[i+2:]
		}
		return "", ""
	}
	end := strings.IndexAny(s, " \t\r\n{};\"")
	if end < 0 {
		end = len(s)
	}
	return s[:end], s[end:]
}

// Disabled reports whether a boolean setting is explicitly off.
func (c Config) Disabled(key string) bool {
	switch strings.ToLower(c[strings.ToLower(key)]) {
	case "no", "false", "without", "off", "disable", "0":
		return true
	}
	return false
}

// Proxy chooses as apt does: the setting for the host, then the one for the
// scheme (https falls back to http), then the environment.
func (c Config) Proxy(req *http.Request) (*url.URL, error) {
	schemes := []string{req.URL.Scheme}
	if req.URL.Scheme == "https" {
		schemes = append(schemes, "http")
	}
	for _, suffix := range []string{"::" + req.URL.Hostname(), ""} {
		for _, scheme := range schemes {
			switch v := c["acquire::"+scheme+"::proxy"+strings.ToLower(suffix)]; {
			case strings.EqualFold(v, "DIRECT"):
				return nil, nil
			case v != "" && strings.Contains(v, "://"):
				return url.Parse(v)
			}
		}
	}
	return http.ProxyFromEnvironment(req)
}
