package hostsfile

import (
	"slices"
	"strings"
)

// hostsMark ends the line of /etc/hosts that belongs to Ramet.
const hostsMark = "# ramet"

// maxNames bounds the host names that a sandbox is known by.
const maxNames = 16

// With returns the contents of /etc/hosts, which is old, for a sandbox that is called hostname. Only the line that
// Ramet wrote is replaced. The names in it stay, behind the new one: what was configured with them goes on. localhost
// is added if no line names it: many images have no /etc/hosts, as container engines write that file themselves.
func With(old, hostname string) string {
	names := []string{hostname}
	for line := range strings.Lines(old) {
		for _, name := range ownNames(line) {
			if !slices.Contains(names, name) && len(names) < maxNames {
				names = append(names, name)
			}
		}
	}
	own := "127.0.1.1\t" + strings.Join(names, " ") + "\t" + hostsMark + "\n"
	var b strings.Builder
	local, written := false, false
	for line := range strings.Lines(old) {
		if ownNames(line) != nil {
			if !written {
				b.WriteString(own)
			}
			written = true
			continue
		}
		entry, _, _ := strings.Cut(line, "#")
		fields := strings.Fields(entry)
		local = local || len(fields) > 1 && slices.Contains(fields[1:], "localhost")
		b.WriteString(line)
	}
	text := b.String()
	if !written {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += own
	}
	if !local {
		text = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" + text
	}
	return text
}

// Name returns the host name that Ramet has given a sandbox with this /etc/hosts, or "".
func Name(hosts string) string {
	for line := range strings.Lines(hosts) {
		if names := ownNames(line); names != nil {
			return names[0]
		}
	}
	return ""
}

// ownNames returns the names in a line that Ramet wrote, or nil for another line.
func ownNames(line string) []string {
	rest, marked := strings.CutSuffix(strings.TrimRight(line, "\r\n"), hostsMark)
	fields := strings.Fields(rest)
	if !marked || len(fields) < 2 || fields[0] != "127.0.1.1" {
		return nil
	}
	return fields[1:]
}
