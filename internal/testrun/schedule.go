package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// scheduler runs jobs side by side, the longest first.
type scheduler struct {
	workspace *workspace
	report    *report
	slots     int
}

// run returns the outcomes of all jobs that were started.
func (s *scheduler) run(ctx context.Context, jobs []*job) []*outcome {
	waiting := byUrgency(jobs)
	busy := map[string]bool{} // keys of jobs that run alone
	ended := make(chan *outcome)
	var all []*outcome
	var active sync.WaitGroup
	free := s.slots
	for len(waiting) > 0 || free < s.slots {
		for free > 0 && ctx.Err() == nil {
			at := slices.IndexFunc(waiting, func(j *job) bool { return j.alone == "" || !busy[j.alone] })
			if at < 0 {
				break
			}
			j := waiting[at]
			waiting = slices.Delete(waiting, at, at+1)
			free--
			if j.alone != "" {
				busy[j.alone] = true
			}
			s.report.started(j)
			active.Go(func() { ended <- j.start(ctx, s.workspace, nil) })
		}
		if free == s.slots { // the run was ended
			break
		}
		o := <-ended
		free++
		delete(busy, o.job.alone)
		s.report.ended(o)
		all = append(all, o)
	}
	active.Wait()
	return all
}

// byUrgency sorts jobs by their time, those that run alone by the time that is left of their kind.
func byUrgency(jobs []*job) []*job {
	sorted := slices.Clone(jobs)
	slices.SortStableFunc(sorted, func(a, b *job) int { return int(b.cost - a.cost) })
	left := map[string]time.Duration{}
	urgency := map[*job]time.Duration{}
	for _, j := range slices.Backward(sorted) {
		urgency[j] = j.cost
		if j.alone != "" {
			left[j.alone] += j.cost
			urgency[j] = left[j.alone]
		}
	}
	slices.SortStableFunc(sorted, func(a, b *job) int { return int(urgency[b] - urgency[a]) })
	return sorted
}
