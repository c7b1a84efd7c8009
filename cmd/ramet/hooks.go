package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/doctor"
	"ramet.dev/ramet/internal/storage/paths"
)

// report is what doctor prints with --json.
type report struct {
	// Machine is the host name of the machine that the findings are about, but for the
	// one of the name "daemon".
	Machine  string           `json:"machine"`
	Findings []doctor.Finding `json:"findings"`
}

// patience is how long doctor waits for a daemon that it was pointed at.
const patience = 10 * time.Second

// runDoctor shows what the probes of this machine find, and whether the daemon answers
// that the options name, if they do. It fails if a sandbox could not start.
func runDoctor(ctx context.Context, _ *client.Client, stdout io.Writer, opts cli.HookOptions) error {
	p, err := paths.Find()
	if err != nil {
		return err
	}
	r := report{Findings: doctor.Run(ctx, p.DataDir())}
	if r.Machine, err = os.Hostname(); err != nil {
		return fmt.Errorf("name this machine: %w", err)
	}
	if opts.Host != "" {
		r.Findings = append([]doctor.Finding{probeDaemon(ctx, opts)}, r.Findings...)
	}
	if opts.JSON {
		err = json.NewEncoder(stdout).Encode(r)
	} else {
		err = writeFindings(stdout, &r, opts.Host)
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

// probeDaemon asks the daemon that the options name, as the caller that they name. What
// its machine can do it does not tell.
func probeDaemon(ctx context.Context, opts cli.HookOptions) doctor.Finding {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	f := doctor.Finding{Name: "daemon", Status: doctor.StatusFail}
	c, h, err := opts.Reach(ctx)
	if err != nil {
		f.Detail, f.Remedy = err.Error(), "check the address and the token, and that the daemon runs there: ramet serve --listen HOST:PORT"
		return f
	}
	defer c.Close()
	f.Detail = fmt.Sprintf("%s: version %s, %s", opts.Host, h.Version, h.Status)
	if _, err := c.Sandboxes.List(ctx, api.ListFilter{Name: "doctor"}); err != nil { // whoever asks for their health is answered
		f.Detail += ": " + err.Error()
		f.Remedy = "check the token that you show it"
		return f
	}
	f.Status = doctor.StatusOK
	return f
}

func writeFindings(w io.Writer, r *report, host string) error {
	head := "checks of this machine, " + r.Machine
	if host != "" {
		head += "; of the daemon at " + host + " only whether it answers: for its machine run ramet doctor there"
	}
	if _, err := fmt.Fprintln(w, head+":"); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range r.Findings {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", f.Status, f.Name, f.Detail)
		if f.Remedy != "" {
			fmt.Fprintf(tw, "\t\t→ %s\n", f.Remedy)
		}
	}
	return tw.Flush()
}
