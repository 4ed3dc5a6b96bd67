package session

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatAgentsSendIsTakenAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		s := &Service{taken: newPace()}
		begin := time.Now()
		for range n {
			s.pace(paceMost - entryBytes)
		}
		if got, want := time.Since(begin), (n*paceMost-paceBurst)/paceBytes*time.Second; got.Round(time.Second) != want {
			t.Errorf("%d took %v, want %v", n, got, want)
		}
		begin = time.Now()
		s.pace(paceBurst * 10)
		if got, most := time.Since(begin), time.Second*paceMost/paceBytes; got > most+time.Millisecond {
			t.Errorf("one that is long took %v, want at most %v", got, most)
		}
	})
}
