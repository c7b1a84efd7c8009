package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
)

func TestInWords(t *testing.T) {
	cmd := &cobra.Command{Use: "x"}
	for _, option := range []string{"memory", "timeout", "since", "self-control", "cwd", "meta", "pids", "ttl", "require", "auto-checkpoint"} {
		cmd.Flags().String(option, "", "")
		if err := cmd.Flags().Set(option, "given"); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("plain"), "plain"},
		{api.NotFound("image", "x"), `no image "x"`},
		{api.Invalid("limits.memory_mib", "1 is too little"), "--memory: 1 is too little"},
		{api.Invalid("limits.pids", "body.limits.pids: expected number >= 0"), "--pids: expected number >= 0"},
		{api.Invalid("limits.pids", "body.limits.pids: expected number; body.limits.memory_mib: expected number"), "--pids: expected number; --memory: expected number"},
		{api.Invalid("require[1]", "body.require[1]: it must be one of: sentry, systrap"), `--require: "given" is not one of sentry, systrap`},
		{api.Invalid("auto_checkpoint.keep", "1 is not from 2 to 1000"), "--auto-checkpoint: 1 is not from 2 to 1000"},
		{api.Invalid("timeout_ms", "-1 is negative"), "--timeout: -1 is negative"},
		{api.Invalid("ttl_s", "an end is needed"), "--ttl: an end is needed"},
		{api.Invalid("from", "query.from: expected number >= -1"), "--since: expected number >= -1"},
		{api.Invalid("self_control.forks", "0 is not from 1"), "--self-control forks: 0 is not from 1"},
		{api.AsError(fmt.Errorf("exec: %w", api.Invalid("cwd", `"/x" is no directory`))), `--cwd: "/x" is no directory`},
		{api.Invalid("metadata", "%q is not a key", "k"), `--meta: "k" is not a key`},
		{api.AsError(fmt.Errorf("update sandbox: %w", api.Invalid("name", "%q is not a name: 1 to 63", "-"))), `"-" is not a name: 1 to 63`},
		{api.Invalid("id", "%q is not a name", "."), `"." is not a name`},
		{api.Invalid("keep_kib", "8 is too much"), "keep: 8 is too much"},
		{fmt.Errorf("listen: %w", api.Invalid("cwd", "no")), "listen: --cwd: no"},
		{errors.Join(api.Invalid("cwd", "no"), errors.New("more")), "cwd: no\nmore"},
	} {
		if got := message(cmd, c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	if got := message(nil, api.Invalid("limits.cpus", "no")); got != "cpus: no" {
		t.Errorf("without a command: %q", got)
	}
}

func TestDaemonsWordsAreOptionsHere(t *testing.T) {
	for _, c := range []struct {
		command string
		err     error
		want    string
	}{
		{"rm", api.Errorf(api.CodeConflict, "delete them first, or all at once (cascade), or have them made independent of it (flatten)"),
			"delete them first, or all at once (--cascade), or have them made independent of it (--flatten)"},
		{"bisect", api.Errorf(api.CodeWrongState, "no steps: create it with auto_checkpoint"), "no steps: create it with --auto-checkpoint N"},
		{"ls", api.Errorf(api.CodeUnknownUser, "no token was given: send one as Authorization: Bearer, or use the daemon's socket"),
			"no token was given: give one in RAMET_TOKEN or by --token-file, or use the daemon's socket"},
		{"logs", api.Errorf(api.CodeNotFound, "attach: no process 14"), "no process 14"},
		{"attach", api.Errorf(api.CodeNotFound, "attach: no process 14"), "no process 14"},
		{"image build", api.Errorf(api.CodeNotFound, "build image: build Debian root file system: no package x"), "no package x"},
		{"exec", api.Errorf(api.CodeWrongState, "exec: sandbox x is paused"), "sandbox x is paused"},
		{"create", api.NotFound("image", "x"),
			`no image "x": see 'ramet image ls'; 'ramet image build x' makes one of that name, 'ramet image pull' and 'ramet image import' get one from elsewhere`},
		{"create", api.NotFound("image", "snap_aaaaaaaaaaaaaaaa"), `no image "snap_aaaaaaaaaaaaaaaa", nor a snapshot of that id: see 'ramet snapshots'`},
		{"create", api.NotFound("image", "sbx_aaaaaaaaaaaaaaaa"), `no image "sbx_aaaaaaaaaaaaaaaa": it is the id of a sandbox, of which 'ramet fork' makes more`},
		{"rm", api.NotFound("image", "x"), `no image "x"`},
		{"commit", api.Errorf(api.CodeNameTaken, `choose another name, or take it from that image (--force, "replace": true)`), "choose another name, or take it from that image (--force)"},
		{"ls", api.Errorf(api.CodeForbidden, "all_tenants: only the owner of the daemon"), "--all-tenants: only the owner of the daemon"},
		{"create", api.Errorf(api.CodeInvalid, `no image "x"`), `no image "x"`},
		{"ls", api.Errorf(api.CodeUnavailable, "call daemon: %w", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}),
			"call daemon: tls: failed to verify certificate: x509: certificate signed by unknown authority; give its certificate with --ca or RAMET_CA"},
	} {
		if got := message(&cobra.Command{Use: c.command + " X"}, c.err); got != c.want {
			t.Errorf("%s: %v: %q, want %q", c.command, c.err, got, c.want)
		}
	}
}

// TestEveryArgumentIsKnown: usage lines are what missing arguments are named from.
func TestEveryArgumentIsKnown(t *testing.T) {
	for use, want := range map[string]string{
		"attach [-i] [--from SEQ] [--no-stdin] SBX PID":                                    "[SBX PID] []",
		"create IMAGE [--name NAME] [--self-control forks=N,depth=N[,snapshots=N]]":        "[IMAGE] []",
		"logs [-f] [--since SEQ] [-t] SBX [PID]":                                           "[SBX] [[PID]]",
		"bisect SBX [--timeout DURATION] -- CMD…  |  bisect SBX -c 'SHELL COMMAND'":        "[SBX CMD…] []",
		"create --scope read|exec|admin [--tenant NAME] [--tree SBX | --sandbox SBX] TEXT": "[TEXT] []",
	} {
		needed, more := arguments(use)
		if got := fmt.Sprint(needed, more); got != want {
			t.Errorf("%s: %s, want %s", use, got, want)
		}
	}
}
