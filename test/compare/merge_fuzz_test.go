package compare

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/textdiff"
	"ramet.dev/ramet/test/harness"
)

// lines returns what "guest list" says of each path below /m, without which names
// are of one file.
func lines(n *harness.Node, ref string) map[string]string {
	n.T.Helper()
	all := map[string]string{}
	for l := range strings.SplitSeq(strings.TrimSpace(n.Guest(ref, "list", "/m")), "\n") {
		at, rest, _ := strings.Cut(l, " ")
		if i := strings.LastIndex(rest, `"`); i >= 0 {
			rest = rest[:i+1]
		}
		all[at] = rest
	}
	return all
}

// randomEdits returns changes below /m, which clash now and then.
func randomEdits(rng *rand.Rand, have map[string]string, count int) []string {
	names := []string{"a", "b", "c"}
	where := func() string {
		at := "/m"
		for range 1 + rng.IntN(3) {
			at += "/" + names[rng.IntN(len(names))]
		}
		return at
	}
	have = maps.Clone(have)
	isDir := func(at string) bool { return strings.HasPrefix(have[at], "04") }
	gone := func(at string) {
		maps.DeleteFunc(have, func(p, _ string) bool { return p == at || strings.HasPrefix(p, at+"/") })
	}
	var edits []string
	for len(edits) < count {
		at := where()
		if !isDir(path.Dir(at)) {
			continue
		}
		_, there := have[at]
		text := strings.Repeat("same\n", rng.IntN(3)) + fmt.Sprint(rng.IntN(3)) + "\n" + strings.Repeat("end\n", rng.IntN(3))
		switch k := rng.IntN(10); {
		case k < 3 && !isDir(at):
			if strings.HasPrefix(have[at], "12") {
				edits = append(edits, "rm "+at)
			}
			edits = append(edits, "put "+at+" "+text)
			have[at] = "100644"
		case k == 3 && there:
			edits = append(edits, "rm "+at)
			gone(at)
		case k == 4 && !there:
			edits = append(edits, "mkdir "+at)
			have[at] = "040755"
		case k == 5 && there && !strings.HasPrefix(have[at], "12"):
			edits = append(edits, "chmod "+at+" "+[]string{"700", "755", "644"}[rng.IntN(3)])
		case k == 6 && !there:
			edits = append(edits, "sym "+at+" "+names[rng.IntN(3)])
			have[at] = "120777"
		case k == 7 && there:
			if to := where(); isDir(path.Dir(to)) && have[to] == "" && !strings.HasPrefix(to, at+"/") {
				edits = append(edits, "mv "+at+" "+to)
				for p, l := range maps.Clone(have) {
					if p == at || strings.HasPrefix(p, at+"/") {
						have[to+strings.TrimPrefix(p, at)] = l
					}
				}
				gone(at)
			}
		case k == 8 && strings.HasPrefix(have[at], "10"):
			edits = append(edits, "add "+at+" more\n")
		case k == 9 && there && !strings.HasPrefix(have[at], "12"):
			edits = append(edits, fmt.Sprint("xattr ", at, " user.x ", rng.IntN(3)))
		}
	}
	return edits
}

// TestMergeFuzz forks, changes and merges at random. What one side changed has come,
// what both did is as one of them or said to be merged or in conflict, and nothing
// else happens.
func TestMergeFuzz(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("p")
	n.Edit("p", "mkdir /m")
	n.Edit("p", randomEdits(rng, lines(n, "p"), 15)...)
	rounds := harness.Kills(t, 15, 5)
	for round := range rounds {
		base := lines(n, "p")
		kids := []string{fmt.Sprint("k", round), fmt.Sprint("l", round)}
		n.ForkNamed("p", kids...)
		sides := []map[string]string{base}
		var edits [][]string
		for _, ref := range append([]string{"p"}, kids...) {
			edits = append(edits, randomEdits(rng, base, 1+rng.IntN(6)))
			n.Edit(ref, edits[len(edits)-1]...)
			sides = append(sides, lines(n, ref))
		}
		strategy := []api.MergeStrategy{api.MergeLeave, api.MergeTheirs, api.MergeOurs}[rng.IntN(3)]
		dry := merge(n, "p", api.MergeRequest{From: kids, Strategy: strategy, DryRun: true})
		r := merge(n, "p", api.MergeRequest{From: kids, Strategy: strategy})
		got := lines(n, "p")
		fail := func(why string) {
			t.Fatalf("round %d, %s: %s\nedits %q\nbase %q\nsides %q\ngot %q\noutcome %v", round, strategy, why, edits, base, sides[1:], got, outcome(r))
		}
		if fmt.Sprint(outcome(dry)) != fmt.Sprint(outcome(r)) {
			fail(fmt.Sprintf("a dry run said %v", outcome(dry)))
		}
		if strategy != api.MergeLeave && r.Unresolved() > 0 {
			fail("conflicts are left")
		}
		checkMerged(base, sides[1:], got, r, fail)
		n.Destroy(kids...)
	}
}

// aspects returns mode, owner, attribute and contents of a line.
func aspects(line string) (a [4]string) {
	for i, word := range strings.Fields(line) {
		if i == 2 && !strings.HasPrefix(word, "user.") {
			i++
		}
		a[min(i, 3)] += word
	}
	return a
}

// hasLines says whether got has what version changed in the lines of base, all of
// them quoted: then one with the other is got again.
func hasLines(base, version, got string) bool {
	var texts [3][]byte
	for i, quoted := range []string{base, version, got} {
		text, err := strconv.Unquote(quoted)
		if err != nil {
			return false // there is no such file
		}
		texts[i] = []byte(text)
	}
	chunks, err := textdiff.Merge(harness.AsOwner, texts[0], texts[1], texts[2])
	disputed := slices.ContainsFunc(chunks, func(c textdiff.Chunk) bool { return c.Conflict })
	return err == nil && !disputed && string(textdiff.Text(chunks, textdiff.Ours)) == string(texts[2])
}

// hasAll says whether all that versions changed of base is in got.
func hasAll(base, got string, versions map[string]bool) bool {
	b, g := aspects(base), aspects(got)
	for v := range versions {
		for i, x := range aspects(v) {
			if x != b[i] && x != g[i] && (i < 3 || !hasLines(b[i], x, g[i])) {
				return false
			}
		}
	}
	return true
}

// checkMerged compares the result of a merge with what must come of it.
func checkMerged(base map[string]string, sides []map[string]string, got map[string]string, r *api.MergeResult, fail func(string)) {
	said := func(at string) bool {
		if slices.ContainsFunc(r.Applied, func(c api.MergeChange) bool { return c.Path == at && c.Merged }) {
			return true
		}
		return slices.ContainsFunc(r.Conflicts, func(c api.MergeConflict) bool {
			return c.Path == at || strings.HasPrefix(at, c.Path+"/") || strings.HasPrefix(c.Path, at+"/")
		})
	}
	paths := maps.Clone(base)
	for _, s := range append(sides, got) {
		maps.Copy(paths, s)
	}
	applied := map[string]bool{}
	for _, c := range r.Applied {
		applied[c.Path] = true
	}
	moved := func(at string) bool {
		return slices.ContainsFunc(r.Applied, func(c api.MergeChange) bool {
			return c.OldPath != "" && (strings.HasPrefix(at+"/", c.OldPath+"/") || strings.HasPrefix(at+"/", c.Path+"/"))
		})
	}
	for at := range paths {
		versions := map[string]bool{}
		for _, s := range sides {
			if s[at] != base[at] {
				versions[s[at]] = true
			}
		}
		if !moved(at) && applied[at] != (got[at] != sides[0][at]) {
			fail(at + ": the result says something else about whether it changed")
		}
		switch {
		case said(at):
		case len(versions) == 0 && got[at] != base[at]:
			fail(at + " was changed by nobody")
		case len(versions) == 1 && !versions[got[at]]:
			fail(at + ": a change is lost")
		case len(versions) > 1 && !hasAll(base[at], got[at], versions):
			fail(at + ": a conflict is not told")
		}
	}
}
