package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// quietVar adds the option that has a command print ids alone.
func quietVar(f *pflag.FlagSet, to *bool) { quietOf(f, to, "ids") }

// quietOf is quietVar for a command whose results are not called ids.
func quietOf(f *pflag.FlagSet, to *bool, what string) {
	f.BoolVarP(to, "quiet", "q", false, "print "+what+" only")
}

// showIDs is show for a result that has ids: with quiet they are all that is printed, one
// a line. JSON has them anyway.
func (a *app) showIDs(v any, quiet bool, ids []string, text func(io.Writer) error) error {
	if quiet {
		text = lines(ids)
	}
	return a.show(v, text)
}

// lines returns a text for show: nothing if there are none.
func lines(all []string) func(io.Writer) error {
	return func(w io.Writer) error {
		if len(all) == 0 {
			return nil
		}
		return line(printableLines(all))(w)
	}
}

func printableLines(all []string) string { return withoutControls(strings.Join(all, "\n"), "\n") }

// idsOf returns what id says of each of list.
func idsOf[T any](list []T, id func(*T) string) []string {
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = id(&list[i])
	}
	return ids
}

// progressUnless returns the progress of a command that may be quiet.
func (a *app) progressUnless(ctx context.Context, quiet bool) progress {
	if quiet {
		return noProgress{}
	}
	return a.newProgress(ctx)
}
