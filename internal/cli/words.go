package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
)

// optionOf are the options that fields of requests come from where their names
// differ by more than a unit.
var optionOf = map[string][]string{
	"names":    {"name"},
	"metadata": {"meta"},
	"language": {"lang"},
	"paths":    {"path"},
	"from":     {"since", "from"},
}

var (
	// inRequest is where the daemon's framework says that something is wrong.
	inRequest = regexp.MustCompile(`\b(?:body|query|path|header)\.([A-Za-z_][\w.-]*)(?:\[\d+\])?: `)
	// element is which one of a list a field is.
	element = regexp.MustCompile(`\[\d+\]$`)
	// operations are what the daemon was doing for a command.
	operations = regexp.MustCompile(`^(?:(?:attach|build (?:image|Debian root file system)|commit|create sandbox|diff|exec|export|fork|import image|merge|pull image|restore|rollback|run code|signal|snapshot|start|update sandbox): )+`)
	// oneOf is how the daemon says what a value may be. It leaves out what it was.
	oneOf = regexp.MustCompile(`^it must be one of: (.*)$`)
	unit  = regexp.MustCompile(`[_-](?:ms|s|mib|kib)$`)
)

// inWords returns err, of cmd, as a person is told: fields of requests are called
// as the options are that they come from, or without what only REST knows, and what
// can be done about it is added.
func inWords(cmd *cobra.Command, err error) string {
	text := sayOptions.Replace(withOptions(cmd, err))
	text = text[len(operations.FindString(text)):] // the user knows which command he gave
	return text + hintOf(cmd, err, text)
}

// withOptions returns err with fields called as the options of cmd are.
func withOptions(cmd *cobra.Command, err error) string {
	text := err.Error()
	var e *api.Error
	if !errors.As(err, &e) || e.Field == "" {
		return text
	}
	before, ok := strings.CutSuffix(text, e.Error())
	if !ok { // several errors, or one that says it in its own words
		return text
	}
	field := element.ReplaceAllString(e.Field, "")
	name, given := nameOf(cmd, field)
	detail := e.Detail
	// Who wraps an error that names a field names it once more.
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
	if !given && strings.HasPrefix(detail, `"`) { // of an argument, what was typed says which one it is
		return before + detail
	}
	return before + name + ": " + detail
}

// nameOf returns the option of cmd that a field comes from, or the field in words; a
// variable of the environment is called as it is. given says that it is no argument: the
// option, or the variable, is what was given.
func nameOf(cmd *cobra.Command, field string) (name string, given bool) {
	if strings.HasPrefix(field, "RAMET_") {
		return field, true
	}
	first, _, within := strings.Cut(field, ".")
	last := field[strings.LastIndex(field, ".")+1:]
	plain := unit.ReplaceAllString(last, "")
	for _, option := range append(optionOf[field], first, last, plain) {
		option = strings.ReplaceAll(option, "_", "-")
		if cmd == nil || cmd.Flags().Lookup(option) == nil {
			continue
		}
		given = cmd.Flags().Changed(option)
		if within && option == strings.ReplaceAll(first, "_", "-") {
			option += " " + strings.ReplaceAll(plain, "_", " ")
		}
		return "--" + option, given
	}
	return strings.ReplaceAll(plain, "_", " "), false
}
