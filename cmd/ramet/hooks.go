package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/doctor"
	"ramet.dev/ramet/internal/paths"
)

// report is what doctor prints with --json.
type report struct {
	Findings []doctor.Finding `json:"findings"`
}

// runDoctor shows what the probes find. It fails if a sandbox could not start.
func runDoctor(ctx context.Context, _ *client.Client, stdout io.Writer, opts cli.HookOptions) error {
	p, err := paths.Find()
	if err != nil {
		return err
	}
	r := report{Findings: doctor.Run(ctx, p.DataDir())}
	if opts.JSON {
		err = json.NewEncoder(stdout).Encode(r)
	} else {
		err = writeFindings(stdout, r.Findings)
	}
	if err != nil {
		return fmt.Errorf("write findings: %w", err)
	}
	for _, f := range r.Findings {
		if f.Status == doctor.StatusFail {
			return cli.ExitError(1)
		}
	}
	return nil
}

func writeFindings(w io.Writer, findings []doctor.Finding) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", f.Status, f.Name, f.Detail)
		if f.Remedy != "" {
			fmt.Fprintf(tw, "\t\t→ %s\n", f.Remedy)
		}
	}
	return tw.Flush()
}
