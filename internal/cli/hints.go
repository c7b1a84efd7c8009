package cli

import (
	"crypto/x509"
	"errors"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/cli/session"
)

// restTerms replaces the terms of the REST interface in errors of the daemon by those of the
// command line.
var restTerms = strings.NewReplacer(
	"all at once (cascade)", "all at once (--cascade)",
	"independent of it (flatten)", "independent of it (--flatten)",
	`(--force, "replace": true)`, "(--force)",
	"all_tenants: only", "--all-tenants: only",
	"create it with auto_checkpoint", "create it with --auto-checkpoint N",
	"send one as Authorization: Bearer, or use the daemon's socket", "give one in "+session.EnvToken+" or by --token-file, or use the daemon's socket",
)

var noImage = regexp.MustCompile(`no image "([^"]*)"$`)

// hintOf returns a hint for the user on err of cmd, whose message is text, or an empty text.
func hintOf(cmd *cobra.Command, err error, text string) string {
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return "; give its certificate with --ca or " + session.EnvCA
	}
	if cmd == nil {
		return ""
	}
	if missing := noImage.FindStringSubmatch(text); missing != nil && makesSandbox(cmd) && api.CodeOf(err) == api.CodeNotFound {
		if api.IsID(api.KindSnapshot, missing[1]) {
			return ", nor a snapshot of that id: see 'ramet snapshots'"
		}
		if api.IsID(api.KindSandbox, missing[1]) {
			return ": it is the id of a sandbox, of which 'ramet fork' makes more"
		}
		return ": see 'ramet image ls'; 'ramet image build " + missing[1] + "' makes one of that name, 'ramet image pull' and 'ramet image import' get one from elsewhere"
	}
	if strings.HasPrefix(text, "no network profile ") && api.CodeOf(err) == api.CodeNotFound {
		return ": see 'ramet network profiles'; the name of a file has a slash or ends in .yaml, .yml or .json"
	}
	return ""
}

// makesSandbox reports whether cmd makes a sandbox of an image.
func makesSandbox(cmd *cobra.Command) bool {
	return cmd.Name() == "create" || cmd.Flags().Lookup("rm") != nil // with --from
}
