package harness

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// envSeed is the seed of tests that do random things, or "random".
const envSeed = "RAMET_TEST_SEED"

// Seeded returns a random source. Its seed is that of the test and the user, so that a run
// judges the change and not its luck, unless envSeed says another or the test is to look
// for something new (see envFuzz and envKills). It is printed.
func Seeded(t testing.TB) *rand.Rand {
	t.Helper()
	own := fnv.New64a()
	fmt.Fprintf(own, "%s as %d", t.Name(), os.Geteuid())
	seed := own.Sum64()
	switch s := os.Getenv(envSeed); {
	case s == "random" || s == "" && os.Getenv(envFuzz)+os.Getenv(envKills) != "":
		seed = uint64(time.Now().UnixNano())
	case s != "":
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", envSeed, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// RandomPause waits for a random time up to most. It is not to synchronise with
// anything: the point is not to.
func RandomPause(rng *rand.Rand, most time.Duration) {
	time.Sleep(time.Duration(rng.Int64N(int64(most))))
}

// envKills is how often each test that kills processes at random moments does so,
// instead of the few times that there is time for in every run.
const envKills = "RAMET_TEST_KILLS"

// Kills returns how often a test kills something: count times, those of an ordinary
// user, who does the same again, ordinary times, or as often as envKills says.
func Kills(t testing.TB, count, ordinary int) int {
	t.Helper()
	if text := os.Getenv(envKills); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%q is not a number from 1", envKills, text)
		}
		return n
	}
	if os.Geteuid() != 0 {
		return ordinary
	}
	return count
}

// Count returns how often a test does what is the same each time: count times, those of an
// ordinary user, who does the same again, ordinary times, or soak times where envKills asks
// for larger counts.
func Count(count, ordinary, soak int) int {
	switch {
	case os.Getenv(envKills) != "":
		return soak
	case os.Geteuid() != 0:
		return ordinary
	}
	return count
}

// CrashRounds is how often each kind of process is killed.
func CrashRounds(t testing.TB) int { return Kills(t, 16, 6) }

// envFuzz is how long each of the tests that do random things goes on, instead of
// ending after a few rounds.
const envFuzz = "RAMET_FS_FUZZ"

// Rounds calls round that often, or for as long as envFuzz says.
func Rounds(t testing.TB, count int, round func()) {
	t.Helper()
	limit, err := time.ParseDuration(os.Getenv(envFuzz))
	if os.Getenv(envFuzz) != "" && err != nil {
		t.Fatal(err)
	}
	begin, done := time.Now(), 0
	for ; limit == 0 && done < count || time.Since(begin) < limit; done++ {
		round()
	}
	t.Logf("rounds: %d in %v", done, time.Since(begin).Round(time.Millisecond))
}

// Window is how long an operation takes at most, about: it comes closer with each run.
type Window time.Duration

// Cancelled cancels an operation at a random moment within the window.
func (w *Window) Cancelled(rng *rand.Rand, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(AsOwner)
	defer cancel()
	defer time.AfterFunc(time.Duration(rng.Int64N(int64(*w))), cancel).Stop()
	err := run(ctx)
	if err == nil {
		*w = max(*w*3/4, Window(time.Millisecond))
	} else {
		*w = *w * 4 / 3
	}
	return err
}
