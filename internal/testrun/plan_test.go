package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestShards(t *testing.T) {
	var tests []string
	for i := range 30 {
		tests = append(tests, fmt.Sprint("Test", i))
	}
	cost := func(test string) time.Duration {
		if test == "Test7" {
			return 200 * time.Second
		}
		return 20 * time.Second
	}
	got := shards(tests, cost)
	if len(got) != 8 {
		t.Fatalf("%d jobs for 780 s", len(got))
	}
	all := slices.Concat(got...)
	slices.Sort(all)
	slices.Sort(tests)
	if !slices.Equal(all, tests) {
		t.Errorf("the jobs have the tests %v", all)
	}
	for _, shard := range got {
		if slices.Contains(shard, "Test7") && len(shard) > 1 {
			t.Errorf("the longest test shares a job with %v", shard)
		}
	}
	if got := shards(nil, cost); got != nil {
		t.Errorf("no tests make the jobs %v", got)
	}
}

func TestPatternMatchesWholeNames(t *testing.T) {
	if got := pattern([]string{"TestA", "TestB"}); got != "^(TestA|TestB)$" {
		t.Error(got)
	}
}

func TestByUrgency(t *testing.T) {
	var names []string
	for _, j := range byUrgency([]*job{
		{name: "short", cost: 1}, {name: "long", cost: 30},
		{name: "a", cost: 20, alone: "x"}, {name: "b", cost: 15, alone: "x"},
	}) {
		names = append(names, j.name)
	}
	if want := []string{"a", "long", "b", "short"}; !slices.Equal(names, want) {
		t.Errorf("the order is %v, not %v", names, want)
	}
}

// TestTimesAreReadAsTheyAreWritten has a job whose name has a space.
func TestTimesAreReadAsTheyAreWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "times.txt")
	want := times{"go vet": 2 * time.Second, "sdk/python": 400 * time.Second}
	var outcomes []*outcome
	for name, took := range want {
		outcomes = append(outcomes, &outcome{job: &job{name: name, output: lines}, took: took})
	}
	if err := (times{}).record(file, outcomes); err != nil {
		t.Fatal(err)
	}
	if got, err := readTimes(file); err != nil || !maps.Equal(got, want) {
		t.Errorf("it reads %v, %v", got, err)
	}
	for _, text := range []string{"alone\n", " 1.0\n", "name x\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readTimes(file); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
