package session

import (
	"cmp"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/httpwire"
)

// Remote has the options that name a daemon other than the user's own. There is no option for a
// token, because all users of a machine see the arguments of a process.
type Remote struct {
	host, tokenFile, caFile, key string

	keyOption *pflag.Flag
}

// The environment variables of the options.
const (
	envHost      = "RAMET_HOST"
	EnvToken     = "RAMET_TOKEN"
	envTokenFile = "RAMET_TOKEN_FILE"
	EnvCA        = "RAMET_CA"
)

func (r *Remote) flags(f *pflag.FlagSet) {
	f.StringVar(&r.host, "host", "", "daemon to connect to, as https://HOST:PORT or unix:PATH; "+envHost)
	f.StringVar(&r.tokenFile, "token-file", "", "file with the token for the daemon; "+envTokenFile+", or the token itself in "+EnvToken)
	f.StringVar(&r.caFile, "ca", "", "file with certificate authorities in PEM form that the daemon's certificate is checked against; "+EnvCA)
	f.StringVar(&r.key, "idempotency-key", "", "run this command once, however often it is repeated with this key")
	r.keyOption = f.Lookup("idempotency-key")
}

// address returns the address of the daemon, empty for the user's own.
func (r *Remote) address() string { return cmp.Or(r.host, os.Getenv(envHost)) }

// config returns the configuration of a client. Its address is empty for the user's own daemon.
func (r *Remote) config() (cfg client.Config, err error) {
	cfg.Address, cfg.IdempotencyKey = r.address(), r.key
	if r.keyOption.Changed && r.key == "" { // usually from an unset variable
		return cfg, api.Invalid("idempotency-key", "an empty key would not keep this from being done twice")
	}
	if file := cmp.Or(r.caFile, os.Getenv(EnvCA)); file != "" {
		if cfg.CA, err = os.ReadFile(file); err != nil {
			return cfg, api.Invalid("ca", "%v", err)
		}
	}
	cfg.Token = os.Getenv(EnvToken)
	if file := cmp.Or(r.tokenFile, os.Getenv(envTokenFile)); file != "" && (r.tokenFile != "" || cfg.Token == "") {
		text, err := os.ReadFile(file)
		if err != nil {
			return cfg, api.Invalid("token-file", "%v", err)
		}
		cfg.Token = string(text)
	}
	if cfg.Token = strings.TrimSpace(cfg.Token); cfg.Token != "" && !strings.HasPrefix(cfg.Token, httpwire.SecretPrefix) {
		return cfg, api.Invalid("token", "a token begins with %s, and what was given does not", httpwire.SecretPrefix)
	}
	return cfg, nil
}
