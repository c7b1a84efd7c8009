package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/doctor"
	"ramet.dev/ramet/internal/storage/paths"
)

// report is the JSON of doctor.
type report struct {
	// Machine is the host name of the machine that was probed. The finding with the name
	// "daemon" is about the machine of that daemon.
	Machine  string           `json:"machine"`
	Findings []doctor.Finding `json:"findings"`
}

// daemonTimeout bounds the time that doctor waits for the daemon that the options name.
const daemonTimeout = 10 * time.Second

// doctorHook is the work of doctor: it probes this machine, or traces a sandbox.
func doctorHook() *cli.Hook {
	var sandbox string
	return &cli.Hook{
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&sandbox, "sandbox", "", "show what the kernel of this sandbox does instead: tasks, stacks and the end of its log; for reports about commands that do not start")
		},
		Run: func(ctx context.Context, c *client.Client, stdout io.Writer, opts cli.HookOptions) error {
			if sandbox != "" {
				return traceSandbox(ctx, stdout, sandbox, opts)
			}
			return runDoctor(ctx, c, stdout, opts)
		},
	}
}

// traceSandbox prints what the kernel of a sandbox does.
func traceSandbox(ctx context.Context, stdout io.Writer, ref string, opts cli.HookOptions) error {
	c, _, err := opts.Reach(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := c.Sandboxes.Trace(ctx, ref)
	if err != nil {
		return err
	}
	if opts.JSON {
		err = json.NewEncoder(stdout).Encode(t)
	} else {
		now := t.Now
		if t.Missing != "" {
			now = "no trace: " + t.Missing + "\n"
		}
		_, err = fmt.Fprintf(stdout, "== now\n%s\n== log\n%s", now, t.Log)
	}
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// runDoctor prints the findings of the probes of this machine and, if the options name a daemon,
// whether that daemon answers. It fails if a sandbox could not start.
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

// probeDaemon asks the daemon that the options name, with the token of the options. A daemon does
// not report what its machine can do.
func probeDaemon(ctx context.Context, opts cli.HookOptions) doctor.Finding {
	ctx, cancel := context.WithTimeout(ctx, daemonTimeout)
	defer cancel()
	f := doctor.Finding{Name: "daemon", Status: doctor.StatusFail}
	c, h, err := opts.Reach(ctx)
	if err != nil {
		f.Detail, f.Remedy = err.Error(), "check the address and the token, and that the daemon runs there: ramet serve --listen HOST:PORT"
		return f
	}
	defer c.Close()
	f.Detail = fmt.Sprintf("%s: version %s, %s", opts.Host, h.Version, h.Status)
	if _, err := c.Sandboxes.List(ctx, api.ListFilter{Name: "doctor"}); err != nil { // the health check needs no token
		f.Detail += ": " + err.Error()
		f.Remedy = "check the token"
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
