package idempotency

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/storage/store"
)

type bench struct {
	*Store
	t    *testing.T
	path string
	s    *store.Store
	at   time.Time
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, path: filepath.Join(t.TempDir(), "db"), at: time.Now()}
	b.open()
	t.Cleanup(func() { b.s.Close() })
	return b
}

func (b *bench) open() {
	b.t.Helper()
	s, err := store.Open(context.Background(), b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	if b.Store, err = Open(context.Background(), s); err != nil {
		b.t.Fatal(err)
	}
	b.s, b.now, b.most = s, func() time.Time { return b.at }, 3
}

func (b *bench) keep(key, body string) {
	b.t.Helper()
	b.keepFor("", key, body)
}

func (b *bench) keepFor(tenant, key, body string) {
	b.t.Helper()
	if err := b.KeepAnswer(context.Background(), key, service.Answer{Tenant: tenant, Body: []byte(body)}); err != nil {
		b.t.Fatal(err)
	}
	b.at = b.at.Add(time.Second)
}

func (b *bench) has(key string) string {
	b.t.Helper()
	a, err := b.Answer(context.Background(), key)
	if err != nil {
		b.t.Fatal(err)
	}
	if a == nil {
		return ""
	}
	return string(a.Body)
}

func TestAnswersOutliveTheDaemonAndNotTheDay(t *testing.T) {
	b := newBench(t)
	b.keep("k", "begun")
	b.keep("k", "done")
	b.s.Close()
	b.open()
	if got := b.has("k"); got != "done" {
		t.Errorf("%q", got)
	}
	b.at = b.at.Add(lifetime)
	if got := b.has("k"); got != "" {
		t.Errorf("after a day: %q", got)
	}
	b.keep("other", "x")
	if got := len(b.known); got != 1 {
		t.Errorf("%d answers are kept", got)
	}
}

func TestOldestAnswersGoFirst(t *testing.T) {
	b := newBench(t)
	for i := range 4 {
		b.keep(fmt.Sprint(i), "x")
	}
	b.keep("1", "again") // it is the youngest now
	if err := b.ForgetAnswer(context.Background(), "2"); err != nil {
		t.Fatal(err)
	}
	b.keep("4", "x")
	b.keep("5", "x")
	b.keep("6", "x")
	for key, want := range map[string]bool{"0": false, "1": true, "2": false, "3": false, "4": true, "5": true, "6": true} {
		if got := b.has(key) != ""; got != want {
			t.Errorf("%s is kept: %t", key, got)
		}
	}
}

// However many answers one tenant has, others keep theirs; also those that a daemon
// finds when it starts.
func TestNoTenantPushesOutAnothersAnswers(t *testing.T) {
	b := newBench(t)
	b.keepFor("quiet", "q", "stays")
	for i := range 3 {
		b.keepFor("busy", fmt.Sprint(i), "x")
	}
	b.s.Close()
	b.open()
	for i := 3; i < 20; i++ {
		b.keepFor("busy", fmt.Sprint(i), "x")
	}
	if got := b.has("q"); got != "stays" {
		t.Errorf("the other tenant's answer: %q", got)
	}
	if b.has("0") != "" || b.has("19") == "" {
		t.Error("the busy tenant's oldest did not go first")
	}
	b.at = b.at.Add(lifetime)
	b.keepFor("third", "t", "x")
	if len(b.known) != 1 || len(b.shares) != 1 {
		t.Errorf("after a day %d answers of %d tenants are known", len(b.known), len(b.shares))
	}
}

// Requests that fail, and may come again at once, leave nothing behind.
func TestForgottenAnswersTakeNoRoom(t *testing.T) {
	b := newBench(t)
	b.keep("first", "stays")
	for i := range 3 * slack {
		key := fmt.Sprint(i)
		b.keep(key, "begun")
		if err := b.ForgetAnswer(context.Background(), key); err != nil {
			t.Fatal(err)
		}
		b.at = b.at.Add(-time.Second)
	}
	if n := len(b.shares[""].order); n > slack+10 {
		t.Errorf("%d answers are in the order, and one is kept", n)
	}
	if b.has("first") != "stays" {
		t.Error("the one that was kept is gone")
	}
	b.keep("second", "")
	b.keep("third", "")
	b.keep("fourth", "")
	b.keep("fifth", "")
	if b.has("first") != "" {
		t.Error("the oldest did not go first")
	}
}
