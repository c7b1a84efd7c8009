package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/api"
)

// IdentityFiles lists the files with the identity of a sandbox.
func IdentityFiles() string {
	files := api.IdentityFiles()
	last := len(files) - 1
	return strings.Join(files[:last], ", ") + " and " + files[last]
}

// FailedHooks returns the failed hooks of a child, with the last line of output of each. A child
// with failed hooks runs nevertheless.
func FailedHooks(id *api.Identity) string {
	if id == nil {
		return ""
	}
	var failed []string
	for _, h := range id.Hooks {
		if h.ExitCode == 0 {
			continue
		}
		text := fmt.Sprintf("hook %s: exit code %d", h.Name, h.ExitCode)
		if h.TimedOut {
			text = fmt.Sprintf("hook %s: killed after %.0f s", h.Name, h.DurationMS/1000)
		}
		out := strings.TrimSpace(h.Output)
		if last := out[strings.LastIndexByte(out, '\n')+1:]; last != "" {
			text += ": " + last
		}
		failed = append(failed, text)
	}
	return strings.Join(failed, "; ")
}

// Lifecycle describes when a sandbox is destroyed, hibernated or paused.
func Lifecycle(l *api.Lifecycle) string {
	if l == nil {
		return ""
	}
	var parts []string
	if at, ok := l.Expiry(); ok {
		parts = append(parts, "destroyed at "+at.Format(time.RFC3339))
	}
	if d := l.IdleTimeout(); d > 0 {
		parts = append(parts, string(l.IdleAction)+" after "+d.String()+" without use")
	}
	if !l.AutoWake {
		parts = append(parts, "woken only by wake and resume")
	}
	if l.KeepSnapshots > 0 {
		parts = append(parts, fmt.Sprintf("its tree keeps %d snapshots without a name", l.KeepSnapshots))
	}
	if l.SnapshotMaxAgeMS > 0 {
		parts = append(parts, "snapshots without a name are kept "+(time.Duration(l.SnapshotMaxAgeMS)*time.Millisecond).String())
	}
	if len(parts) == 0 {
		return "without end"
	}
	return strings.Join(parts, ", ")
}

// Shortened cuts a text that is too long for a table. The inspect command shows the whole text.
func Shortened(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// Expiry returns the time of an expiry, empty if there is none.
func Expiry(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.Format(time.RFC3339)
}

// JoinPairs returns the pairs of a map in order, as K=V.
func JoinPairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, " ")
}

// MaxCommand is the number of characters of a command that a table shows. The interpreters
// of contexts have whole programs among their arguments.
const MaxCommand = 80

// ShortCommand returns a command, cut for a table.
func ShortCommand(command string) string {
	if r := []rune(command); len(r) > MaxCommand {
		return string(r[:MaxCommand-1]) + "…"
	}
	return command
}

// NameOrLabel returns the name of a snapshot, or in brackets the label that the sandbox gave it.
func NameOrLabel(s *api.Snapshot) string {
	if s.Name == "" && s.Label != "" {
		return "(" + s.Label + ")"
	}
	return s.Name
}

// CommandLine returns a command on one line, cut for a table.
func CommandLine(text string) string { return Shortened(strings.Join(strings.Fields(text), " ")) }

// Network describes what a document allows, in one line.
func Network(p *api.NetworkPolicy) string {
	if p == nil || p.Closed() {
		return "none"
	}
	var parts []string
	add := func(what string, rules []api.NetworkRule) {
		var texts []string
		for _, r := range rules {
			texts = append(texts, r.Describe())
		}
		if len(texts) > 0 {
			parts = append(parts, what+strings.Join(texts, ", "))
		}
	}
	if p.Default == api.NetworkAllow {
		parts = append(parts, "all public addresses")
	}
	add("allow ", p.Allow)
	add("deny ", p.Deny)
	add("accept ", p.Accept)
	if len(p.Rules) > 0 {
		parts = append(parts, "rules for "+strings.Join(slices.Sorted(maps.Keys(p.Rules)), ", "))
	}
	return strings.Join(append(parts, networkLimits(p.Limits)...), "; ")
}

// Held adds to the description of a network that its requests are held.
func Held(network string, hold api.NetworkHold) string {
	if hold == "" {
		return network
	}
	return fmt.Sprintf("%s; held: %s wait", network, hold)
}

func networkLimits(l api.NetworkLimits) (parts []string) {
	for _, limit := range []struct {
		n    int
		unit string
	}{{l.Connections, "connections"}, {l.RateMbit, "Mbit/s"}, {l.DNSPerS, "name look-ups per second"}} {
		if limit.n > 0 {
			parts = append(parts, fmt.Sprintf("at most %d %s", limit.n, limit.unit))
		}
	}
	return parts
}
