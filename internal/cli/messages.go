package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
)

// optionOf maps fields of requests to the options that set them, where their names
// differ by more than a unit.
var optionOf = map[string][]string{
	"names":    {"name"},
	"metadata": {"meta"},
	"language": {"lang"},
	"paths":    {"path"},
	"from":     {"since", "from"},
	// The option has the value of this field alone.
	"auto_checkpoint.keep": {"auto-checkpoint"},
}

var (
	// inRequest matches the location that the daemon's framework puts before an error.
	inRequest = regexp.MustCompile(`\b(?:body|query|path|header)\.([A-Za-z_][\w.-]*)(?:\[\d+\])?: `)
	// element matches the index of a field in a list.
	element = regexp.MustCompile(`\[\d+\]$`)
	// operations matches the operations that the daemon puts before an error.
	operations = regexp.MustCompile(`^(?:(?:attach|build (?:image|Debian root file system)|commit|create sandbox|diff|exec|export|fork|import image|merge|pull image|read network log|restore|rollback|run code|set network|signal|snapshot|start|test network|update sandbox): )+`)
	// oneOf matches the daemon's list of accepted values, which lacks the given value.
	oneOf = regexp.MustCompile(`^it must be one of: (.*)$`)
	unit  = regexp.MustCompile(`[_-](?:ms|s|mib|kib)$`)
)

// message returns the text of err for the user of cmd. It replaces fields of requests by the
// options that set them, removes terms that only the REST interface has, and adds a hint.
func message(cmd *cobra.Command, err error) string {
	text := restTerms.Replace(withOptions(cmd, err))
	text = text[len(operations.FindString(text)):] // the user knows the command
	return text + hintOf(cmd, err, text)
}

// withOptions returns the text of err with fields replaced by the options of cmd.
func withOptions(cmd *cobra.Command, err error) string {
	text := err.Error()
	var e *api.Error
	if !errors.As(err, &e) || e.Field == "" {
		return text
	}
	before, ok := strings.CutSuffix(text, e.Error())
	if !ok { // several errors, or a wrapper with a text of its own
		return text
	}
	field := element.ReplaceAllString(e.Field, "")
	name, given := nameOf(cmd, field)
	detail := e.Detail
	// An error that wraps one with a field repeats the name of the field.
	again := regexp.MustCompile(`^(?:[a-z ]+: )*` + regexp.QuoteMeta(field) + ": ")
	detail = detail[len(again.FindString(detail)):]
	if said := inRequest.FindStringSubmatch(detail); said != nil && said[1] == field && strings.HasPrefix(detail, said[0]) {
		detail = detail[len(said[0]):]
	}
	detail = inRequest.ReplaceAllStringFunc(detail, func(said string) string {
		name, _ := nameOf(cmd, inRequest.FindStringSubmatch(said)[1])
		return name + ": "
	})
	if may := oneOf.FindStringSubmatch(detail); may != nil && given && strings.HasPrefix(name, "--") {
		detail = fmt.Sprintf("%q is not one of %s", cmd.Flags().Lookup(strings.Fields(name[2:])[0]).Value, may[1])
	}
	if !given && strings.HasPrefix(detail, `"`) { // the quoted value identifies the argument
		return before + detail
	}
	return before + name + ": " + detail
}

// nameOf returns the option of cmd that sets a field, or the name of the field in words. A variable
// of the environment keeps its name. given reports whether the user set the option or the variable.
func nameOf(cmd *cobra.Command, field string) (name string, given bool) {
	if strings.HasPrefix(field, "RAMET_") {
		return field, true
	}
	first, _, within := strings.Cut(field, ".")
	last := field[strings.LastIndex(field, ".")+1:]
	plain := unit.ReplaceAllString(last, "")
	for i, option := range append(slices.Clone(optionOf[field]), first, last, plain) {
		option = strings.ReplaceAll(option, "_", "-")
		if cmd == nil || cmd.Flags().Lookup(option) == nil {
			continue
		}
		given = cmd.Flags().Changed(option)
		if exact := i < len(optionOf[field]); within && !exact && option == strings.ReplaceAll(first, "_", "-") {
			option += " " + strings.ReplaceAll(plain, "_", " ")
		}
		return "--" + option, given
	}
	return strings.ReplaceAll(plain, "_", " "), false
}
