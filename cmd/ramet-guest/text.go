package main

import (
	"slices"
	"strconv"
	"strings"

	"ramet.dev/ramet/internal/engine/control"
)

// text prints an answer for people, and for scripts that compare words.
func text(r *control.Reply) string {
	switch {
	case r.Children != nil:
		out := "parent"
		for _, c := range r.Children {
			if c.ID != "" {
				out += " " + c.ID
			}
		}
		return out + "\n"
	case r.Child != nil:
		return "child " + strconv.Itoa(r.Child.Index) + "\n"
	case r.Snapshot != nil:
		return "snapshot " + r.Snapshot.ID + "\n"
	case r.Restored != nil:
		return "restored " + strconv.Itoa(r.Restored.Index) + "\n"
	case r.Tagged != nil:
		return pairs(r.Tagged.Metadata, "\n")
	case r.Diff != nil:
		return changes(r.Diff)
	case r.Info != nil:
		return info(r.Info)
	}
	return ""
}

func changes(d *control.Diff) string {
	var b strings.Builder
	for _, c := range d.Changes {
		b.WriteString(c.Kind + " ")
		if c.Old != "" {
			b.WriteString(pathText(c.Old, c.OldExact) + " -> ")
		}
		b.WriteString(pathText(c.Path, c.Exact) + "\n")
	}
	if d.Truncated > 0 {
		b.WriteString("and " + strconv.Itoa(d.Truncated) + " more\n")
	}
	return b.String()
}

// pathText returns a path. It quotes a path that has quotes, backslashes or characters that a
// terminal cannot show, as Go does. exact is the path if that is not UTF-8.
func pathText(path string, exact []byte) string {
	if exact != nil {
		path = string(exact)
	}
	if q := strconv.Quote(path); q != `"`+path+`"` {
		return q
	}
	return path
}

func info(i *control.Info) string {
	out := "id         " + i.ID + "\n"
	for _, line := range [][2]string{{"name", i.Name}, {"parent", i.Parent}, {"index", strconv.Itoa(i.Index)}, {"metadata", strings.TrimSpace(pairs(i.Metadata, " "))}} {
		if line[1] != "" {
			out += (line[0] + "           ")[:11] + line[1] + "\n"
		}
	}
	left := func(l control.Left) string { return strconv.Itoa(l.Left) + " of " + strconv.Itoa(l.Limit) + " left\n" }
	out += "forks      " + left(i.Budget.Forks) + "depth      " + strconv.Itoa(i.Budget.Depth.Left) + " left\n" + "snapshots  " + left(i.Budget.Snapshots)
	for _, s := range i.Snapshots {
		out += "snapshot   " + strings.TrimSpace(s.ID+" "+s.Name) + "\n"
	}
	for _, c := range i.Children {
		out += "child      " + c.ID + " " + strconv.Itoa(c.Index) + "\n"
	}
	return out
}

// pairs returns K=V, each followed by end.
func pairs(m map[string]string, end string) string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	out := ""
	for _, k := range keys {
		out += k + "=" + m[k] + end
	}
	return out
}
