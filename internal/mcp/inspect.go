package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
)

type inspectInput struct {
	Sandbox   string   `json:"sandbox,omitempty" jsonschema:"sandbox or snapshot to look at; leave it out for the tree of all"`
	Other     string   `json:"other,omitempty" jsonschema:"a second sandbox or snapshot: what differs in it from the first one"`
	Hunks     bool     `json:"hunks,omitempty" jsonschema:"with other: unified diffs of text files"`
	Processes bool     `json:"processes,omitempty" jsonschema:"with other: processes that differ, too"`
	Variables bool     `json:"variables,omitempty" jsonschema:"with other: variables of ramet_run_code that differ, too"`
	Paths     []string `json:"paths,omitempty" jsonschema:"with other: only these paths and the files below them"`
}

// inspectOutput has one of its members.
type inspectOutput struct {
	Tree      []treeLine   `json:"tree,omitempty" jsonschema:"sandboxes and snapshots, children after their parents"`
	Sandbox   *sandboxView `json:"sandbox,omitempty" jsonschema:"the sandbox"`
	Changes   []change     `json:"changes,omitempty" jsonschema:"what differs"`
	Truncated bool         `json:"truncated,omitempty" jsonschema:"there is more: ask about paths"`
	text      string
}

type treeLine struct {
	ID    string `json:"id" jsonschema:"id"`
	Name  string `json:"name,omitempty" jsonschema:"name"`
	Kind  string `json:"kind" jsonschema:"sandbox or snapshot"`
	State string `json:"state" jsonschema:"state; destroyed if only its descendants are left"`
	Depth int    `json:"depth" jsonschema:"generations above it"`
}

type sandboxView struct {
	sandboxOutput
	Parent    string        `json:"parent,omitempty" jsonschema:"sandbox that it was forked from"`
	CreatedAt time.Time     `json:"created_at" jsonschema:"when it was made"`
	Processes []processLine `json:"processes,omitempty" jsonschema:"processes that run"`
	Ports     []string      `json:"ports,omitempty" jsonschema:"ports that they listen on"`
}

type processLine struct {
	Process int     `json:"process" jsonschema:"number of the process"`
	Command string  `json:"command" jsonschema:"its command line, cut"`
	Memory  float64 `json:"memory_mib" jsonschema:"resident memory"`
}

// change is a difference of any kind.
type change struct {
	What string `json:"what" enum:"file,process,variable" jsonschema:"file, process or variable"`
	Kind string `json:"kind" jsonschema:"added, modified, deleted or renamed"`
	Name string `json:"name" jsonschema:"path, command line, or context and name"`
	Was  string `json:"was,omitempty" jsonschema:"old path, command line or value"`
	Is   string `json:"is,omitempty" jsonschema:"new value"`
	Diff string `json:"diff,omitempty" jsonschema:"unified diff"`
}

// maxShown is how many lines of a list are answered.
const maxShown = 200

// Text implements output.
func (o inspectOutput) Text() string { return o.text }

func (s *server) addInspect(to *sdk.Server) {
	add(s, to, "inspect", "List, inspect or compare sandboxes",
		"Without arguments: the tree of all sandboxes and snapshots. With sandbox: its state, processes and listening ports. With sandbox and other: what differs between them, in files, and on request processes and variables. Use it to compare the children of a fork before ramet_promote.",
		reads, inspect)
}

func inspect(ctx context.Context, c *call, in inspectInput) (inspectOutput, error) {
	switch {
	case in.Other != "" && in.Sandbox == "":
		return inspectOutput{}, api.Invalid("sandbox", "other is compared with sandbox: give both")
	case in.Other != "":
		return compare(ctx, c, in)
	case in.Sandbox != "":
		return view(ctx, c, in.Sandbox)
	}
	roots, err := c.daemon.Sandboxes.Tree(ctx, "")
	if err != nil {
		return inspectOutput{}, err
	}
	var out inspectOutput
	out.addTree(roots, 0)
	var text []string
	for _, l := range out.Tree {
		text = append(text, fmt.Sprintf("%s%s %s%s %s", strings.Repeat("  ", l.Depth), l.Kind, l.ID, named(l.Name), l.State))
	}
	if len(text) == 0 {
		text = []string{"there is no sandbox: ramet_create makes one"}
	}
	if out.Truncated {
		text = append(text, "… and more")
	}
	out.text = strings.Join(text, "\n")
	return out, nil
}

func (o *inspectOutput) addTree(nodes []*api.TreeNode, depth int) {
	for _, n := range nodes {
		if len(o.Tree) == maxShown {
			o.Truncated = true
			return
		}
		o.Tree = append(o.Tree, treeLine{ID: n.ID, Name: n.Name, Kind: n.Kind, State: n.State, Depth: depth})
		o.addTree(n.Children, depth+1)
	}
}

// view looks at one sandbox.
func view(ctx context.Context, c *call, ref string) (out inspectOutput, err error) {
	sb, err := c.daemon.Sandboxes.Get(ctx, ref)
	if err != nil {
		return out, err
	}
	v := &sandboxView{sandboxOutput: describe(sb), Parent: sb.Parent, CreatedAt: sb.CreatedAt}
	out.Sandbox = v
	text := []string{v.Text()}
	if v.Parent != "" {
		text = append(text, "parent: "+v.Parent)
	}
	if sb.Network != nil {
		text = append(text, fmt.Sprintf("network: %d rules, %s by default", len(sb.Network.Allow)+len(sb.Network.Deny)+len(sb.Network.Rules), or(string(sb.Network.Default), "deny")))
	} else {
		text = append(text, "network: none")
	}
	if sb.State != api.StateRunning { // a question would wake it
		out.text = strings.Join(text, "\n")
		return out, nil
	}
	processes, err := c.daemon.Processes.List(ctx, ref, false)
	if err != nil {
		return out, err
	}
	ports, err := c.daemon.Ports.List(ctx, ref)
	if err != nil {
		return out, err
	}
	for _, p := range processes[:min(len(processes), maxShown)] {
		l := processLine{p.PID, firstLine(p.Command), p.MemoryMiB}
		v.Processes = append(v.Processes, l)
		text = append(text, fmt.Sprintf("process %d: %s", l.Process, l.Command))
	}
	out.Truncated = len(processes) > maxShown
	for _, p := range ports {
		v.Ports = append(v.Ports, fmt.Sprintf("%s %s:%d", p.Protocol, p.Address, p.Port))
	}
	if len(v.Ports) > 0 {
		text = append(text, "listens on "+strings.Join(v.Ports, ", "))
	}
	out.text = strings.Join(text, "\n")
	return out, nil
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// compare says what differs in the second one.
func compare(ctx context.Context, c *call, in inspectInput) (out inspectOutput, err error) {
	d, err := c.daemon.Sandboxes.Diff(ctx, in.Sandbox, in.Other, api.DiffRequest{
		Paths: in.Paths, Hunks: in.Hunks, Processes: in.Processes, Variables: in.Variables,
	})
	if err != nil {
		return out, err
	}
	all := fileChanges(d.Changes)
	for _, p := range d.Processes {
		all = append(all, change{What: "process", Kind: string(p.Kind), Name: fmt.Sprintf("%d %s", p.PID, firstLine(p.Command)), Was: firstLine(p.OldCommand)})
	}
	for _, v := range d.Variables {
		all = append(all, change{What: "variable", Kind: string(v.Kind), Name: v.Context + ": " + v.Name, Was: firstLine(v.OldRepr), Is: firstLine(v.Repr)})
	}
	room := maxText
	for _, ch := range all {
		line := ch.Text()
		if len(out.Changes) == maxShown || len(line) > room {
			out.Truncated = true
			break
		}
		room -= len(line)
		out.Changes = append(out.Changes, ch)
		out.text += line + "\n"
	}
	switch {
	case len(all) == 0:
		out.text = "nothing differs"
	case out.Truncated:
		out.text += fmt.Sprintf("… %d of %d are shown: ask about paths, or without hunks", len(out.Changes), len(all))
	}
	return out, nil
}

func fileChanges(all []api.Change) []change {
	var out []change
	for _, ch := range all {
		out = append(out, change{What: "file", Kind: string(ch.Kind), Name: ch.Path, Was: ch.OldPath, Diff: ch.Hunks})
	}
	return out
}

// Text returns the change as lines.
func (c change) Text() string {
	text := c.Kind + " "
	if c.What != "file" {
		text += c.What + " "
	}
	text += c.Name
	switch {
	case c.Was != "" && c.Is != "":
		text += ": " + c.Was + " → " + c.Is
	case c.Was != "":
		text += " (was " + c.Was + ")"
	case c.Is != "":
		text += " = " + c.Is
	}
	return lines(text, c.Diff)
}
