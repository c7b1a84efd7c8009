package policy

import (
	"fmt"
	"net/netip"
	"testing"

	"ramet.dev/ramet/api"
)

// largePolicy has as many rules as a long document, and a bound.
func largePolicy(t testing.TB) *Policy {
	t.Helper()
	var lines []string
	for i := range 300 {
		lines = append(lines, fmt.Sprintf("allow h%d.example.org", i), fmt.Sprintf("allow *.w%d.example.org", i), fmt.Sprintf("allow 198.51.%d.0/24:5432", i%256))
	}
	doc := parseDocument(t, append(lines, "deny 203.0.113.0/28", "deny bad.example.org", "allow 2001:db8::/32")...)
	doc.Rules = map[string]api.NetworkTreatment{"llm.example.com": {Methods: []string{"POST"}}}
	return compile(t, Spec{Document: doc, Bounds: []Bound{{Of: "the daemon", Document: parseDocument(t, "default allow", "allow 198.51.0.0/16")}}})
}

// judged are questions that go different ways.
func judged(t testing.TB) map[string]*Question {
	return map[string]*Question{
		"denied":  question(t, "203.0.113.9:443"),
		"range":   question(t, "198.51.7.1:5432"),
		"name":    question(t, "203.0.113.99:443 h7.example.org"),
		"shown":   question(t, "203.0.113.99:443 a.b.w7.example.org h7.example.org seen=a.b.w7.example.org"),
		"treated": question(t, "203.0.113.99:443 llm.example.com seen=llm.example.com"),
		"udp":     question(t, "udp 198.51.7.1:5432"),
		"echo":    question(t, "echo 198.51.7.1"),
	}
}

func TestJudgingAllocatesNothing(t *testing.T) {
	p := largePolicy(t)
	for name, q := range judged(t) {
		if n := testing.AllocsPerRun(100, func() { p.Judge(q) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	addr := netip.MustParseAddr("203.0.113.99")
	for name, f := range map[string]func(){
		"name":   func() { p.JudgeName("h7.example.org") },
		"answer": func() { p.JudgeAnswer("h7.example.org", addr) },
		"target": func() { p.JudgeTarget(&Peer{Name: "db"}, 80) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	p := largePolicy(b)
	for name, q := range judged(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p.Judge(q)
			}
		})
	}
}
