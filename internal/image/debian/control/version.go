package control

import "strings"

// CompareVersions orders two Debian package versions as Debian policy 5.6.12
// defines it. It returns -1, 0 or +1 and accepts any string.
func CompareVersions(a, b string) int {
	ea, ua, ra := splitVersion(a)
	eb, ub, rb := splitVersion(b)
	if c := compareDigits(ea, eb); c != 0 {
		return c
	}
	if c := comparePart(ua, ub); c != 0 {
		return c
	}
	return comparePart(ra, rb)
}

// splitVersion cuts "[epoch:]upstream[-revision]". A missing epoch is "" and a
// missing revision is "", both of which compare equal to "0".
func splitVersion(v string) (epoch, upstream, revision string) {
	if i := strings.IndexByte(v, ':'); i >= 0 && allDigits(v[:i]) {
		epoch, v = v[:i], v[i+1:]
	}
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return epoch, v[:i], v[i+1:]
	}
	return epoch, v, ""
}

// comparePart compares alternating runs of non-digits and digits.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		var ta, tb string
		ta, a = cutRun(a, false)
		tb, b = cutRun(b, false)
		if c := compareText(ta, tb); c != 0 {
			return c
		}
		ta, a = cutRun(a, true)
		tb, b = cutRun(b, true)
		if c := compareDigits(ta, tb); c != 0 {
			return c
		}
	}
	return 0
}

// cutRun splits s after its longest prefix of digits (or of non-digits).
func cutRun(s string, digits bool) (run, rest string) {
	i := 0
	for i < len(s) && isDigit(s[i]) == digits {
		i++
	}
	return s[:i], s[i:]
}

// compareText compares two runs of non-digits: a tilde sorts before the end of
// the run, letters before everything else.
func compareText(a, b string) int {
	for i := 0; i < len(a) || i < len(b); i++ {
		wa, wb := weight(a, i), weight(b, i)
		if wa != wb {
			return sign(wa - wb)
		}
	}
	return 0
}

func weight(s string, i int) int {
	switch {
	case i >= len(s):
		return 0
	case s[i] == '~':
		return -1
	case isLetter(s[i]):
		return int(s[i])
	}
	return int(s[i]) + 256
}

// compareDigits compares decimal numbers of any length without converting
// them, so that no version can overflow.
func compareDigits(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if len(a) != len(b) {
		return sign(len(a) - len(b))
	}
	return strings.Compare(a, b)
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func allDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}
