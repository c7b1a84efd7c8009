package kern

import "testing"

func TestParseID(t *testing.T) {
	for s, ok := range map[string]bool{
		"0": true, "1000": true, "4294967294": true,
		"4294967295": false, "4294967296": false, "-1": false, "": false, "1a": false, " 1": false, "0x10": false, "+1": false,
	} {
		if _, err := parseID(s); (err == nil) != ok {
			t.Errorf("parseID(%q): %v", s, err)
		}
	}
}
