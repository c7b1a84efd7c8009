package selfcontrol

import (
	"encoding/json"
	"sync"

	"golang.org/x/time/rate"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/store"
)

// Spending is the stored part of a budget: what may be made in all, and what was made.
type Spending struct {
	Forks         int `json:"forks"`
	Snapshots     int `json:"snapshots"`
	UsedForks     int `json:"used_forks"`
	UsedSnapshots int `json:"used_snapshots"`
}

// Budget bounds what a tree of sandboxes may make by self-requests, and how many requests
// the tree makes at once and per second: a guest must not occupy the daemon.
type Budget struct {
	id    string
	slots chan struct{}
	pace  *rate.Limiter

	mu  sync.Mutex
	rec Spending
	// Set aside for requests under way.
	reservedForks, reservedSnapshots int
}

const (
	// A request costs one unit of the pace; a request that starts sentries or reads
	// trees of files costs more.
	requestsPerSecond = 20
	requestBurst      = 80
	costlyRequest     = 4
	requestsAtOnce    = 4
)

// NewBudget returns the budget with the given id.
func NewBudget(id string, rec Spending) *Budget {
	return &Budget{id: id, rec: rec, slots: make(chan struct{}, requestsAtOnce), pace: rate.NewLimiter(requestsPerSecond, requestBurst)}
}

// reserve sets part of the budget aside until done is called, so that requests of
// several relatives together cannot exceed it.
func (b *Budget) reserve(forks, snapshots int) (done func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	used, kept := b.rec.UsedForks+b.reservedForks, b.rec.UsedSnapshots+b.reservedSnapshots
	switch {
	case used+forks > b.rec.Forks:
		return nil, api.Errorf(api.CodeLimit, "forks: %d of %d that this sandbox and its relatives may make are used, and the call asks for %d more", used, b.rec.Forks, forks)
	case kept+snapshots > b.rec.Snapshots:
		return nil, api.Errorf(api.CodeLimit, "snapshots: %d of %d that this sandbox and its relatives may make are used", kept, b.rec.Snapshots)
	}
	b.reservedForks += forks
	b.reservedSnapshots += snapshots
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reservedForks -= forks
		b.reservedSnapshots -= snapshots
	}, nil
}

// Spend uses up part of the budget that was reserved, if commit succeeds. commit records
// the change that it is given in one transaction with the new sandboxes or snapshots, so
// that a daemon that dies leaves both or neither.
func (b *Budget) Spend(forks, snapshots int, commit func(store.Change) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	rec := b.rec
	rec.UsedForks += forks
	rec.UsedSnapshots += snapshots
	if err := commit(store.Change{Table: store.Grants, ID: b.id, Doc: rec}); err != nil {
		return err
	}
	b.rec = rec
	return nil
}

// Used returns the stored part of the budget.
func (b *Budget) Used() Spending {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec
}

// Budgets are the budgets of a node. It is safe for concurrent use; its lock is a leaf.
type Budgets struct {
	mu  sync.Mutex
	all map[string]*Budget
}

// NewBudgets returns a set without budgets.
func NewBudgets() *Budgets { return &Budgets{all: map[string]*Budget{}} }

// Grant adds the budget of a new sandbox that may control itself, and returns what is to
// be recorded with the sandbox.
func (s *Budgets) Grant(id string, c *api.SelfControl) store.Change {
	rec := Spending{Forks: c.Forks, Snapshots: c.Snapshots}
	s.add(NewBudget(id, rec))
	return store.Change{Table: store.Grants, ID: id, Doc: rec}
}

// Load adds a budget as it was recorded.
func (s *Budgets) Load(id string, doc []byte) error {
	var rec Spending
	if err := json.Unmarshal(doc, &rec); err != nil {
		return err
	}
	s.add(NewBudget(id, rec))
	return nil
}

func (s *Budgets) add(b *Budget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[b.id] = b
}

// Get returns a budget, or nil if it was dropped.
func (s *Budgets) Get(id string) *Budget {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id]
}

// Drop forgets a budget that no sandbox or snapshot has any more, and returns what is to
// be recorded.
func (s *Budgets) Drop(id string) store.Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
	return store.Change{Table: store.Grants, ID: id}
}
