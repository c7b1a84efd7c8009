package values

import (
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/document"
)

// NetworkFlags are the options for what a sandbox may reach.
type NetworkFlags struct {
	cmd         *cobra.Command
	net         string
	allow, deny []string
}

// networkOptions are the options that Flags adds.
var networkOptions = []string{"net", "allow", "deny"}

// Flags adds the options. without says what the network is if none of them is given.
func (o *NetworkFlags) Flags(cmd *cobra.Command, without string) {
	o.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&o.net, "net", "", "what may be reached: none, open, host-registries, another profile (see 'ramet network profiles'), or a file with a document, whose name has a slash or ends in .yaml, .yml or .json; - is standard input"+without)
	f.StringArrayVar(&o.allow, "allow", nil, "allow HOST[:PORT] besides: a name, *.NAME, an address or a range; without a port 443 and 80 of names, and all of addresses; may be repeated")
	f.StringArrayVar(&o.deny, "deny", nil, "deny HOST[:PORT], which is written as for --allow; may be repeated")
	// An error says that there is no such option. Files are completed as well.
	_ = cmd.RegisterFlagCompletionFunc("net", cobra.FixedCompletions([]string{"none", "open", "host-registries"}, cobra.ShellCompDirectiveDefault))
	for _, option := range networkOptions[1:] {
		_ = cmd.RegisterFlagCompletionFunc(option, cobra.NoFileCompletions)
	}
}

// Given returns the first option that the user gave, or an empty text.
func (o *NetworkFlags) Given() string {
	if i := slices.IndexFunc(networkOptions, o.cmd.Flags().Changed); i >= 0 {
		return "--" + networkOptions[i]
	}
	return ""
}

// TakesInput reports whether the document is in standard input.
func (o *NetworkFlags) TakesInput() bool { return o.net == standardInput }

// Request returns the network that the user asked for, or nil if there is none. It reads the file
// that is named, or in.
func (o *NetworkFlags) Request(in io.Reader) (*api.NetworkRequest, error) {
	if o.Given() == "" {
		return nil, nil
	}
	req := &api.NetworkRequest{}
	if o.cmd.Flags().Changed("net") {
		var err error
		if req, err = ParseNetwork("net", o.net, in); err != nil {
			return nil, err
		}
	}
	for _, list := range []struct {
		option string
		texts  []string
		rules  *[]api.NetworkRule
	}{{"allow", o.allow, &req.Allow}, {"deny", o.deny, &req.Deny}} {
		for _, text := range list.texts {
			rule, err := api.ParseNetworkRule(list.option, text)
			if err != nil {
				return nil, api.Invalid(list.option, "%s", api.AsError(err).Detail)
			}
			*list.rules = append(*list.rules, rule)
		}
	}
	return req, nil
}

// standardInput stands for the file that is standard input.
const standardInput = "-"

// ParseNetwork returns the network that the value of an option names: a profile, or the document in a
// file. Whether a word is the name of a file depends on the word alone, and not on the files that
// there are: else a file in the working directory could take the place of a profile.
func ParseNetwork(option, value string, in io.Reader) (*api.NetworkRequest, error) {
	switch {
	case value == standardInput:
		return readNetwork(option, "standard input", in)
	case strings.Contains(value, "/") || slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(value)):
		f, err := os.Open(value)
		if err != nil {
			return nil, api.Invalid(option, "%v", err)
		}
		defer f.Close()
		return readNetwork(option, value, f)
	case api.ValidProfileName(option, value) != nil:
		return nil, api.Invalid(option, "%q is neither a profile nor a file: the name of a file has a slash or ends in .yaml, .yml or .json", value)
	}
	return &api.NetworkRequest{Profile: value}, nil
}

// readNetwork reads a document.
func readNetwork(option, name string, in io.Reader) (*api.NetworkRequest, error) {
	text, err := io.ReadAll(io.LimitReader(in, document.MaxSize+1))
	if err != nil {
		return nil, api.Invalid(option, "%v", err)
	}
	doc, err := document.Parse(text)
	if err != nil {
		e := api.AsError(err)
		member := strings.TrimPrefix(strings.TrimPrefix(e.Field, "network"), ".") // of the document
		if member != "" {
			member += ": "
		}
		return nil, api.Invalid(option, "%s: %s%s", name, member, e.Detail)
	}
	return &api.NetworkRequest{NetworkPolicy: *doc}, nil
}
