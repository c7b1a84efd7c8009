# Reads what quiet.awk printed and prints what the failed tests said, each with its last
# lines, and of packages that ended otherwise theirs: the end of a long log is what people,
# and services that keep a part of it, look at.

BEGIN { most = 80 }

function forget() { n = 0; following = 0 }
function tell() {
	for (i = n > most ? n - most + 1 : 1; i <= n; i++) print lines[i]
	told = 1
}

/^FAIL\t/ && !told { print ""; print; tell() }
/^(ok|\?|FAIL)[ \t]/ || /^== / { forget(); told = left = 0; next }
/^--- (PASS|SKIP)/ { forget(); next }
/^--- FAIL/ { print ""; print; tell(); forget(); following = 1; next }
following && /^ +--- / { print; next } # parts of that test
{ following = 0 }
/^(panic|fatal error): / { print ""; left = most; told = 1 }
left > 0 { print; left--; next }
{ lines[++n] = $0 }
