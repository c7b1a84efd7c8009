package debian

import (
	"net/http"
	"path"
	"runtime"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/debian/apt"
	"ramet.dev/ramet/internal/image/debian/archive"
	"ramet.dev/ramet/internal/image/debian/control"
	"ramet.dev/ramet/internal/image/debian/dpkg"
)

// The phases a Progress may name. The last two overlap.
const (
	PhaseRelease  = "release"  // release files; counts files
	PhaseIndex    = "index"    // package indexes; counts files
	PhaseDownload = "download" // packages; counts bytes
	PhaseUnpack   = "unpack"   // packages; counts packages
)

// Options says what to build and from where. The zero value builds the host's
// own suite with the essential packages only.
type Options struct {
	// Mirror replaces the host's sources by this archive URL, used with Suite
	// alone: no updates or security suite.
	Mirror string
	// Suite is a suite or code name. Default: the host's VERSION_CODENAME, else
	// the suite of its first source.
	Suite string
	// Arch is a Debian architecture name. Default: the running program's.
	Arch string
	// Include names packages to have besides the essential ones.
	Include []string
	// Components restricts the components. Default: those the host's sources name.
	Components []string
	// Without lists absolute path prefixes whose files are left out. nil means
	// dpkg.DefaultWithout; an empty slice leaves nothing out. dpkg's lists still name
	// the files, as with dpkg's own path-exclude.
	Without []string
	// CacheDir keeps indexes and packages by SHA-256, shared between runs and
	// processes. Default: a temporary directory removed before Build returns.
	CacheDir string
	// Progress, if set, is called from one goroutine at a time and must not block.
	Progress func(Progress)
	// Client replaces the HTTP client. Default: one that uses the proxy of apt's
	// configuration, else of the environment.
	Client *http.Client
	// Keyrings replaces the trusted key files of the host for all sources.
	Keyrings []string
	// HostRoot is where apt's configuration is looked up. Default: "/".
	HostRoot string
	// KeepSources writes the archives used into the image's sources.list. Off by
	// default, since they may be reachable or private to this host only.
	KeepSources bool
	// AllowExpired accepts release files past Valid-Until. Hosts that turn off
	// Acquire::Check-Valid-Until in apt's configuration accept them anyway.
	AllowExpired bool
	// AllowUnsigned skips the signature check. It is for tests against a local
	// archive: with it, whoever controls the network controls the image.
	AllowUnsigned bool

	now        func() time.Time
	retryDelay time.Duration
	conf       apt.Config
}

// Progress is one step of Build. Total is 0 while it is unknown.
type Progress struct {
	Phase       string
	Done, Total int64
	Detail      string
}

// complete fills in the defaults and checks what the caller gave.
func (o *Options) complete() error {
	if o.HostRoot == "" {
		o.HostRoot = "/"
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.retryDelay == 0 {
		o.retryDelay = 500 * time.Millisecond
	}
	if o.Without == nil {
		o.Without = dpkg.DefaultWithout
	}
	if o.Arch == "" {
		o.Arch = hostArch()
	}
	if !control.ValidName(o.Arch) {
		return api.Invalid("arch", "must be a Debian architecture name, not %q", o.Arch)
	}
	if o.Suite != "" && !apt.ValidSuite(o.Suite) {
		return api.Invalid("suite", "must be a suite or code name, not %q", o.Suite)
	}
	for _, p := range o.Include {
		if !control.ValidName(p) {
			return api.Invalid("include", "must be package names, not %q", p)
		}
	}
	for _, c := range o.Components {
		if !apt.ValidSuite(c) {
			return api.Invalid("components", "must be component names, not %q", c)
		}
	}
	for _, p := range o.Without {
		if !strings.HasPrefix(p, "/") || path.Clean(p) != p || p == "/" {
			return api.Invalid("without", "must be clean absolute paths, not %q", p)
		}
	}
	o.conf = apt.ReadConfig(o.HostRoot)
	return nil
}

// trust returns which release files are accepted.
func (o *Options) trust() archive.Trust {
	return archive.Trust{
		Keyrings: o.Keyrings, HostRoot: o.HostRoot, AllowUnsigned: o.AllowUnsigned, Now: o.now,
		AllowExpired: o.AllowExpired || o.conf.Disabled("Acquire::Check-Valid-Until"),
	}
}

func (o *Options) report(phase string, done, total int64, detail string) {
	if o.Progress != nil {
		o.Progress(Progress{Phase: phase, Done: done, Total: total, Detail: detail})
	}
}

// hostArch translates Go's architecture names, which differ from Debian's in a
// few cases.
func hostArch() string {
	switch runtime.GOARCH {
	case "386":
		return "i386"
	case "arm":
		return "armhf"
	case "ppc64le":
		return "ppc64el"
	case "loong64":
		return "loong64"
	}
	return runtime.GOARCH
}
