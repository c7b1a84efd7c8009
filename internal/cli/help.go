package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/cli/compare"
	"ramet.dev/ramet/internal/cli/explore"
	"ramet.dev/ramet/internal/cli/files"
	"ramet.dev/ramet/internal/cli/images"
	"ramet.dev/ramet/internal/cli/lineage"
	"ramet.dev/ramet/internal/cli/network"
	"ramet.dev/ramet/internal/cli/processes"
	"ramet.dev/ramet/internal/cli/run"
	"ramet.dev/ramet/internal/cli/sandboxes"
	"ramet.dev/ramet/internal/cli/service"
	"ramet.dev/ramet/internal/cli/volumes"
)

// helpWidth is the largest number of columns of a help page.
const helpWidth = 80

// group is a part of the list of commands.
type group struct {
	title    string
	commands []*cobra.Command
}

// groups returns all commands, in the groups of the help page.
func (a *app) groups() []group {
	sb := sandboxes.New(a.Session)
	lin := lineage.New(a.Session)
	rn := run.New(a.Session)
	ps := processes.New(a.Session)
	fl := files.New(a.Session)
	cmp := compare.New(a.Session)
	exp := explore.New(a.Session)
	img := images.New(a.Session)
	vol := volumes.New(a.Session)
	net := network.New(a.Session)
	svc := service.New(a.Session)
	return []group{
		{"Sandboxes", []*cobra.Command{
			sb.CreateCommand(), sb.LsCommand(), sb.TreeCommand(), sb.InspectCommand(), sb.TagCommand(), sb.RenameCommand(), sb.UpdateCommand(), net.Command(), net.SecretCommand(), net.HeldCommand(), vol.VolumeCommand(),
			sb.PauseCommand(), sb.ResumeCommand(), sb.HibernateCommand(), sb.WakeCommand(), sb.RmCommand(),
		}},
		{"Run code and files", []*cobra.Command{
			rn.ExecCommand(), rn.ShellCommand(), rn.RunCodeCommand(), rn.AttachCommand(), ps.PsCommand(), ps.LogsCommand(), ps.KillCommand(), fl.CpCommand(), ps.PortCommand(),
		}},
		{"Fork, compare, merge", []*cobra.Command{lin.ForkCommand(), cmp.DiffCommand(), cmp.MergeCommand(), lin.PromoteCommand(), exp.ExploreCommand()}},
		{"Snapshots", []*cobra.Command{
			lin.SnapshotCommand(), lin.SnapshotsCommand(), lin.RestoreCommand(), lin.RollbackCommand(), lin.VerifyCommand(), fl.PackCommand(), fl.UnpackCommand(), fl.PushCommand(), fl.PullCommand(), fl.KeyCommand(), lin.TimelineCommand(), lin.BisectCommand(),
		}},
		{"Images", []*cobra.Command{img.ImageCommand(), img.CommitCommand(), fl.ExportCommand()}},
		{"Observe", []*cobra.Command{sb.StatsCommand(), svc.EventsCommand(), svc.AuditCommand()}},
		{"Service", []*cobra.Command{a.serveCommand(), a.statusCommand(), a.stopCommand(), a.configCommand(), a.mcpCommand(), a.skillCommand(), svc.TokenCommand(), svc.TenantCommand(), svc.E2BCommand(), svc.APICommand()}},
		{groupProgram, append(a.hookCommands(), a.jupyterCommand(), a.manCommand(), a.versionCommand())},
	}
}

// groupProgram is the title of the group of commands about the program itself.
const groupProgram = "This program"

// addCommands adds all commands to root, in groups and with examples.
func (a *app) addCommands(root *cobra.Command) {
	for _, g := range a.groups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, cmd := range g.commands {
			cmd.GroupID = g.title
		}
		root.AddCommand(g.commands...)
	}
	root.SetHelpCommandGroupID(groupProgram)
	root.SetCompletionCommandGroupID(groupProgram)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	refuseWords(root, "completion")
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(cmd.OutOrStdout(), cmd) })
	examples := examples()
	for _, cmd := range withChildren(root) {
		if lines := examples[strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")]; lines != "" {
			cmd.Example = "  " + strings.ReplaceAll(lines, "\n", "\n  ")
		}
	}
}

// refuseWords makes a command that only groups others refuse a word that is none of them. Cobra
// shows the help of its own such commands instead, and succeeds.
func refuseWords(root *cobra.Command, name string) {
	for _, cmd := range root.Commands() {
		if cmd.Name() == name {
			cmd.Args = cobra.NoArgs
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// withChildren returns cmd and all commands below it.
func withChildren(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].Commands()...)
	}
	return all
}

// writeHelp writes the help page of a command. It replaces cobra's page, which does not wrap long
// lines.
func writeHelp(w io.Writer, cmd *cobra.Command) {
	var b strings.Builder
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	fmt.Fprintf(&b, "%s\n\nUsage:\n", wrapped(strings.TrimSpace(about), helpWidth))
	if _, words, _ := strings.Cut(cmd.Use, " "); !cmd.HasAvailableSubCommands() || words != "" {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND [flags]\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, g := range cmd.Groups() {
		writeCommands(&b, g.Title, visibleIn(cmd, g.ID))
	}
	writeCommands(&b, "Commands:", visibleIn(cmd, ""))
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", cmd.LocalFlags().FlagUsagesWrapped(helpWidth))
	}
	if cmd.HasAvailableInheritedFlags() {
		fmt.Fprintf(&b, "\nGlobal flags:\n%s", cmd.InheritedFlags().FlagUsagesWrapped(helpWidth))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n'%s COMMAND --help' shows the help of a command.\n", cmd.CommandPath())
	}
	for text := range strings.Lines(b.String()) {
		// An error here means that standard output is closed: there is no reader to report it to.
		_, _ = io.WriteString(w, strings.TrimRight(text, " \n")+"\n")
	}
}

// visibleIn returns the commands below cmd that users see and that belong to a group, or to no
// group if it is empty.
func visibleIn(cmd *cobra.Command, group string) (list []*cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.GroupID == group && (c.IsAvailableCommand() || c.Name() == "help") {
			list = append(list, c)
		}
	}
	return list
}

// writeCommands lists commands, if there are any.
func writeCommands(w io.Writer, title string, commands []*cobra.Command) {
	if len(commands) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, cmd := range commands {
		fmt.Fprintf(w, "  %-*s  %s\n", cmd.NamePadding(), cmd.Name(), cmd.Short)
	}
}

// wrapped breaks lines that are longer than width. The parts of a line have its indentation.
func wrapped(text string, width int) string {
	var out []string
	for _, whole := range strings.Split(text, "\n") {
		indent := whole[:len(whole)-len(strings.TrimLeft(whole, " "))]
		current := ""
		for _, word := range strings.Fields(whole) {
			switch {
			case current == "":
				current = indent + word
			case len([]rune(whole)) <= width: // it may be a table: its spaces stay
				current = whole
			case len([]rune(current))+1+len([]rune(word)) > width:
				out = append(out, current)
				current = indent + word
			default:
				current += " " + word
			}
		}
		out = append(out, current)
	}
	return strings.Join(out, "\n")
}
