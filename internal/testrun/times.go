package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// times are the recorded times of tests of suites, of packages and of SDKs, by name. They only
// decide about the order and the size of jobs.
type times map[string]time.Duration

// unknown is the time of what has no record. Shorter times are recorded as 0.
const unknown = 3 * time.Second

// least is the shortest time that is recorded as it is.
const least = 300 * time.Millisecond

func (t times) of(name string) time.Duration {
	if d, ok := t[name]; ok {
		return d
	}
	return unknown
}

// timeKey names a test of a suite in the record.
func timeKey(suite string, user bool, test string) string {
	if user {
		suite += "/user"
	}
	return suite + "/" + test
}

func readTimes(file string) (times, error) {
	t := times{}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		space := strings.LastIndexByte(line, ' ') // names of jobs have some
		name, seconds := line[:max(0, space)], line[space+1:]
		s, err := strconv.ParseFloat(seconds, 64)
		if err != nil || name == "" {
			return nil, fmt.Errorf("%s: %q is not a name and seconds", file, line)
		}
		t[name] = asDuration(s)
	}
	return t, err
}

// record writes the times of a whole run.
func (t times) record(file string, outcomes []*outcome) error {
	fresh := times{}
	for _, o := range outcomes {
		switch {
		case o.job.tests != nil: // a suite
			for _, test := range o.tests {
				fresh[timeKey(o.job.dir, o.job.user, test.name)] += test.took
			}
		case o.job.output == lines:
			fresh[o.job.name] = o.took
		default:
			for name, took := range o.packages {
				fresh[name] = took
			}
		}
	}
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(fresh)) {
		took := fresh[name]
		if took < least {
			took = 0
		}
		fmt.Fprintf(&b, "%s %.1f\n", name, took.Seconds())
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
