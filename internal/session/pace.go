package session

import (
	"time"

	"golang.org/x/time/rate"
)

const (
	// paceBytes is how much of what agents send is taken in a second, of all of them
	// together, with entryBytes for each update: some 6000 short ones, far more than models
	// write. What it costs to read, store and fold leaves the machine to the calls, which
	// would otherwise wait behind it.
	paceBytes = 2 << 20
	// paceBurst may come at once.
	paceBurst = 8 << 20
	// paceMost is what a long update counts as at most, so that no agent waits for long.
	paceMost = 1 << 20
)

func newPace() *rate.Limiter { return rate.NewLimiter(paceBytes, paceBurst) }

// pace waits until an update of so many bytes may be taken. While it waits nothing more is
// read from the agent.
func (s *Service) pace(bytes int) {
	now := time.Now() // not the service's time, which need not go on
	delay := s.taken.ReserveN(now, min(bytes+entryBytes, paceMost)).DelayFrom(now)
	if delay <= 0 {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	<-timer.C
}
