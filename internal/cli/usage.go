package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// explainUsage makes all commands below root explain what is wrong with their
// arguments.
func explainUsage(root *cobra.Command) {
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	for _, cmd := range withChildren(root) {
		switch check := cmd.Args; {
		case cmd.Parent() == root && cmd.Name() == "help":
			cmd.Args = helpTopic
		case check != nil:
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				return argumentError(cmd, args, check(cmd, args))
			}
		}
	}
}

// helpTopic refuses words that are not a command, as running them is refused.
func helpTopic(cmd *cobra.Command, args []string) error {
	found, rest, err := cmd.Root().Find(args)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("unknown command %q for %q", rest[0], found.CommandPath())
	}
	return err
}

// flagError returns the error for an invalid value of an option, in the common form: the option,
// the value, and the accepted values.
func flagError(err error) error {
	var value *pflag.InvalidValueError
	if !errors.As(err, &value) {
		return err
	}
	wrong := errors.Unwrap(value)
	var number *strconv.NumError
	switch {
	case !errors.As(wrong, &number):
	case number.Func == "ParseBool":
		wrong = errors.New("is neither true nor false")
	case errors.Is(number, strconv.ErrRange):
		wrong = errors.New("is too large a number")
	default:
		wrong = errors.New("is not a number")
	}
	return fmt.Errorf("--%s: %q %w", value.GetFlag().Name, value.GetValue(), wrong)
}

// argumentError replaces an error of cobra, which only counts arguments. It names the arguments of
// the usage line that are missing, or those that are too many.
func argumentError(cmd *cobra.Command, args []string, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	counted := strings.HasPrefix(text, "accepts ") || strings.HasPrefix(text, "requires ")
	if !counted && (cmd.HasSubCommands() || !strings.HasPrefix(text, "unknown command ")) { // the error of cobra.NoArgs
		return err
	}
	needed, more := arguments(cmd.Use)
	switch {
	case len(args) < len(needed):
		missing := needed[len(args):]
		verb := " is missing"
		if len(missing) > 1 {
			verb = " are missing"
		}
		return errors.New(strings.ReplaceAll(strings.Join(missing, " and "), "|", " or ") + verb)
	case len(args) > len(needed)+len(more):
		return tooMany(cmd, args[len(needed)+len(more):], needed, more)
	}
	return err
}

// tooMany returns the error for superfluous arguments. They are often the value of an option, which
// the error then suggests.
func tooMany(cmd *cobra.Command, extra, needed, more []string) error {
	takes := strings.TrimSpace(strings.Join(append([]string{strings.Join(needed, " and ")}, more...), " "))
	if takes == "" {
		takes = "no arguments"
	}
	said := fmt.Sprintf("%q is one argument too many: %s takes %s", extra[0], cmd.Name(), takes)
	if len(extra) > 1 {
		return fmt.Errorf("%d arguments are too many, from %q on: %s takes %s", len(extra), extra[0], cmd.Name(), takes)
	}
	option := "name"
	if _, err := strconv.Atoi(extra[0]); err == nil {
		option = "count"
	}
	if f := cmd.Flags().Lookup(option); f != nil && !f.Changed {
		said += fmt.Sprintf("; say --%s %s if that is its %s", option, extra[0], option)
	}
	return errors.New(said)
}

// An argument in a usage line begins with a capital letter. Arguments in brackets may
// be left out.
var (
	bracketed = regexp.MustCompile(`\[[^][]*\]`)
	optional  = regexp.MustCompile(`\[[A-Z][^][]*\]`)
)

// arguments returns the required arguments of a usage line, and the optional ones with their
// brackets.
func arguments(use string) (needed, more []string) {
	use, _, _ = strings.Cut(use, "  |  ") // the second form of the command
	more = optional.FindAllString(use, -1)
	for bracketed.MatchString(use) {
		use = bracketed.ReplaceAllString(use, "")
	}
	needed = slices.DeleteFunc(strings.Fields(use), func(word string) bool { return word[0] < 'A' || word[0] > 'Z' })
	return needed, more
}
