package transition

import (
	"testing"

	"ramet.dev/ramet/api"
)

func TestTable(t *testing.T) {
	lamp := New("lamp", Step[string]{"", "off", "made"}, Step[string]{"off", "on", "switch"}, Step[string]{"on", "off", "switch"}, Step[string]{"on", "broken", "age"})
	for _, c := range []struct {
		from, to, want string
	}{
		{"", "off", ""}, {"off", "on", ""}, {"on", "broken", ""},
		{"", "on", "lamp l1 cannot begin as on"},
		{"broken", "on", "lamp l1 is broken and cannot become on"},
		{"off", "off", "lamp l1 is off and cannot become off"},
	} {
		err := lamp.Check("l1", c.from, c.to)
		if got := lamp.Allows(c.from, c.to); got != (c.want == "") || got != (err == nil) {
			t.Errorf("%q to %q: %t, %v", c.from, c.to, got, err)
		}
		if err != nil && (err.Error() != c.want || api.CodeOf(err) != api.CodeWrongState) {
			t.Errorf("%q to %q: %v", c.from, c.to, err)
		}
	}
	const drawing = `stateDiagram-v2
    [*] --> off: made
    off --> on: switch
    on --> off: switch
    on --> broken: age
    broken --> [*]
`
	if got := lamp.String(); got != drawing {
		t.Errorf("it is drawn as\n%s", got)
	}
}
