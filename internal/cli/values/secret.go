package values

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
)

// SecretFlags are the options for secrets in requests of a new sandbox.
type SecretFlags struct{ given []string }

// Flags adds the option.
func (o *SecretFlags) Flags(cmd *cobra.Command, more string) {
	cmd.Flags().StringArrayVar(&o.given, "secret", nil, "DOMAIN:HEADER=ENV: allow DOMAIN at port 443, and put the value that the variable ENV has here into HEADER of requests to it, outside of the sandbox; it is kept as the secret ENV, see 'ramet secret'; may be repeated"+more)
	_ = cmd.RegisterFlagCompletionFunc("secret", cobra.NoFileCompletions) // an error says that there is no such option
}

// Given reports whether the user gave the option.
func (o *SecretFlags) Given() bool { return len(o.given) > 0 }

// envSecret is a secret whose value is in a variable of this process.
type envSecret struct{ Domain, Header, Name, Value string }

// authorization is the header whose value has a scheme before the secret.
const authorization = "Authorization"

// Add adds the secrets to the request of a sandbox, and rules for them to its network. A rule allows its
// name at port 443.
func (o *SecretFlags) Add(req *api.CreateRequest) error {
	for _, text := range o.given {
		s, err := parseEnvSecret(text)
		if err != nil {
			return err
		}
		if err := s.addTo(req, text); err != nil {
			return err
		}
	}
	return nil
}

// addTo adds a secret, which the user wrote as text, and its rule.
func (s *envSecret) addTo(req *api.CreateRequest, text string) error {
	if req.Network == nil {
		req.Network = &api.NetworkRequest{}
	}
	if req.Network.Rules == nil {
		req.Network.Rules = map[string]api.NetworkTreatment{}
	}
	rule := req.Network.Rules[s.Domain]
	if rule.Secret != nil {
		return api.Invalid("secret", "%q: requests to %s have a secret already: a rule takes one header", text, s.Domain)
	}
	rule.Secret = &api.NetworkSecret{Header: s.Header, Value: "${" + s.Name + "}"}
	if strings.EqualFold(s.Header, authorization) {
		rule.Secret.Value = "Bearer " + rule.Secret.Value
	}
	req.Network.Rules[s.Domain] = rule
	set, has := req.Secrets[s.Name]
	if has && !strings.EqualFold(set.Header, s.Header) {
		return api.Invalid("secret", "%q: the secret %s is for the header %s already: take another variable", text, s.Name, set.Header)
	}
	if req.Secrets == nil {
		req.Secrets = map[string]api.SecretRequest{}
	}
	set.Value, set.Header, set.Names = s.Value, s.Header, append(set.Names, s.Domain)
	req.Secrets[s.Name] = set
	return nil
}

// parseEnvSecret parses DOMAIN:HEADER=ENV and reads the variable.
func parseEnvSecret(text string) (s envSecret, err error) {
	where, name, ok := strings.Cut(text, "=")
	domain, header, ok2 := strings.Cut(where, ":")
	if !ok || !ok2 || domain == "" || header == "" || name == "" {
		return s, api.Invalid("secret", "%q is not DOMAIN:HEADER=ENV, such as llm.example.com:Authorization=LLM_API_KEY", where+strings.Repeat("=…", min(1, len(name))))
	}
	s = envSecret{Domain: strings.ToLower(strings.TrimSuffix(domain, ".")), Header: header, Name: name}
	if s.Value, err = SecretFromEnv("secret", name); err != nil {
		return s, err
	}
	return s, nil
}

// SecretFromEnv returns the value of a variable. The text of an option is left out of errors if it
// looks like a value: somebody took one for the name.
func SecretFromEnv(option, name string) (string, error) {
	if !isVariable(name) {
		return "", api.Invalid(option, "it names a variable, whose value is the secret, and what was given is no name of one")
	}
	v, ok := os.LookupEnv(name)
	switch {
	case !ok:
		return "", api.Invalid(option, "the variable %s is not set here", name)
	case v == "":
		return "", api.Invalid(option, "the variable %s is empty here", name)
	}
	return v, nil
}

// isVariable reports whether a text has the form of the name of a variable.
func isVariable(name string) bool {
	return name != "" && (name[0] < '0' || name[0] > '9') && !strings.ContainsFunc(name, func(c rune) bool {
		return c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
}
