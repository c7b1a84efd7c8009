# Reads `go test -v` and prints what `go test` would, and for each test that was
# skipped the reason. Packages come one after the other.

function forget() { n = 0; skips = ""; said = "" }

# A compiler's messages belong to no package's output.
/^# / || /^[^ \t]+\.go:[0-9]+:[0-9]+: / { print; next }

/^\?/ { forget(); next } # no test files

/^ok / || /^ok\t/ { printf "%s", skips; print; fflush(); forget(); next }

/^FAIL\t/ {
	for (i = 1; i <= n; i++) if (lines[i] !~ /^(=== |PASS$)/) print lines[i]
	print; fflush(); forget(); next
}

{ lines[++n] = $0 }
/^=== / { said = ""; next }
/^ *--- SKIP/ {
	sub(/^ *--- SKIP: /, ""); sub(/ \([0-9.]+s\)$/, ""); sub(/^ +[^ ]+\.go:[0-9]+: /, "", said)
	skips = skips "skip: " $0 ": " said "\n"; next
}
{ said = $0 }

END { for (i = 1; i <= n; i++) print lines[i] }
