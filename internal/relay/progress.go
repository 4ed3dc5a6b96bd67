package relay

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/metadata"

	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
)

const callHeader = "compozy-call" // how the daemon names the call that it tells of

// followers are the calls whose clients want to be told what they do. The zero value is
// none.
type followers struct {
	mu   sync.Mutex
	told map[string]func(message string) // by the call's name
}

// tell hands progress to the client of its call. What comes for a call that has ended is
// dropped.
func (f *followers) tell(p *facadev1.Progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if told := f.told[p.GetCall()]; told != nil {
		told(p.GetMessage())
	}
}

// follow returns the context of a call of which the client is told what it does, if it
// asked for that. Once done has returned it is told nothing more.
func (f *followers) follow(ctx context.Context, req *mcp.CallToolRequest) (_ context.Context, done func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return ctx, func() {}
	}
	call, steps := rand.Text(), 0.0
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told == nil {
		f.told = make(map[string]func(string))
	}
	f.told[call] = func(message string) {
		steps++
		// It fails when the client has gone, which the call's own answer finds out.
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Message: message, Progress: steps})
	}
	return metadata.AppendToOutgoingContext(ctx, callHeader, call), func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.told, call)
	}
}
