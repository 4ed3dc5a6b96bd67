package task_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
)

// rounds is how often a race is run: COMPOZY_SOAK_ROUNDS times, or a few.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("COMPOZY_SOAK_ROUNDS")
	if text == "" {
		return 3
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("COMPOZY_SOAK_ROUNDS is %q, want a number from 1 on", text)
	}
	return n
}

// TestRaceForALostTaskHasOneWinner has many claim a task whose lease ran out, while the
// sweeper looks for such leases, too.
func TestRaceForALostTaskHasOneWinner(t *testing.T) {
	n := rounds(t)
	each(t, func(h *home) {
		ctx := h.as("fac_0")
		h.create(ctx, "wanted")
		for round := 1; round <= n; round++ {
			swept := make(chan error, 1)
			go func() { swept <- h.Sweep(h.t.Context()) }()
			won := race(h, func(ctx context.Context) (*taskv1.ClaimResponse, error) {
				return h.Claim(ctx, &taskv1.ClaimRequest{Id: "t1", LeaseSeconds: proto.Int32(30)})
			})
			if err := <-swept; err != nil {
				h.t.Fatal(err)
			}
			if len(won) != 1 || won[0].GetFence() != fmt.Sprint(round) {
				h.t.Fatalf("round %d: %d of %d won: %v", round, len(won), racers, won)
			}
			run := h.get(ctx, "t1").GetRuns()
			if last := run[len(run)-1]; last.GetId() != won[0].GetRunId() || int(last.GetAttempt()) != round {
				h.t.Errorf("round %d: the last run is %v, want %s", round, last, won[0].GetRunId())
			}
			h.wantNoViolations(fmt.Sprint("round ", round))
			h.wait(time.Minute)
		}
	})
}
