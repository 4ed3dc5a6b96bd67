package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/proto"

	"compozy.dev/compozy/gen/mcptool"
	"compozy.dev/compozy/internal/fault"
)

// patient serves one tool, which ends only when it is cancelled
// or, where it is deaf, never; arrived is closed when it is called.
func patient(ctx context.Context, deaf bool, arrived chan<- struct{}, in io.Reader, out io.Writer) error {
	calls, cut := context.WithCancel(context.Background())
	defer cut()
	end := calls.Done()
	if deaf {
		end = nil
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "patient"}, nil)
	server.AddTool(&mcp.Tool{Name: "wait", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		close(arrived)
		<-end
		return &mcp.CallToolResult{}, nil
	})
	return serveStdio(server, in, out, ctx.Done(), cut, new(parcels))
}

const (
	begin = `{"jsonrpc":"2.0","id":0,"method":"initialize"}` + "\n"
	call  = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}` + "\n"
)

func TestOpenCallsHaveTheirTime(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		told     bool // to leave, else the input ends
		deaf     bool
		earliest time.Duration
		latest   time.Duration
		lines    int
	}{
		{"end of input", false, false, 5 * time.Second, 5500 * time.Millisecond, 2},
		{"end of input, deaf call", false, true, 5 * time.Second, 5500 * time.Millisecond, 1},
		{"told to leave", true, false, 250 * time.Millisecond, 400 * time.Millisecond, 2},
		{"told to leave, deaf call", true, true, 250 * time.Millisecond, 400 * time.Millisecond, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.deaf {
				// The deaf call outlives the test, which a bubble does not allow.
				t.Parallel()
				playPatient(t, tt.told, tt.deaf, tt.lines)
				return
			}
			synctest.Test(t, func(t *testing.T) {
				took := playPatient(t, tt.told, tt.deaf, tt.lines)
				if took < tt.earliest || took > tt.latest {
					t.Errorf("it took %v, want %v to %v", took, tt.earliest, tt.latest)
				}
			})
		})
	}
}

func playPatient(t *testing.T, told, deaf bool, lines int) time.Duration {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ended, arrived := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- patient(ctx, deaf, arrived, inR, outW)
		outW.Close()
		inR.Close()
	}()
	got := make(chan int, 1)
	go func() {
		n := 0
		for s := bufio.NewScanner(outR); s.Scan(); {
			n++
		}
		got <- n
	}()
	if _, err := io.WriteString(inW, begin+call); err != nil {
		t.Fatal(err)
	}
	<-arrived
	start := time.Now()
	if told {
		leave()
	} else {
		inW.Close()
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	took := time.Since(start)
	if n := <-got; n != lines {
		t.Errorf("got %d lines, want %d", n, lines)
	}
	return took
}

func TestPanicBecomesOneRefusalWithAnID(t *testing.T) {
	var log strings.Builder
	r := &Relay{logger: slog.New(slog.NewTextHandler(&log, nil))}
	broken := newTool(&mcptool.Tool{Name: "broken", NewInput: func() proto.Message { panic("boom") }})
	_, err := r.call(t.Context(), broken, []byte(`{"password":"hunter2"}`), "")
	e := fault.As(err)
	id, _, _ := strings.Cut(strings.TrimPrefix(e.Message, "internal error "), " ")
	if e.Kind != fault.Internal || len(id) != 8 || strings.Contains(e.Message, "boom") {
		t.Errorf("got %v: %q, want an internal error with an id", e.Kind, e.Message)
	}
	if !strings.Contains(log.String(), id) || !strings.Contains(log.String(), "boom") || strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log has to hold the id and the panic, and no arguments:\n%s", log.String())
	}
}

// The daemon takes secrets out of it, and would not know one that was cut.
func TestNameOfAClientReachesTheDaemonWhole(t *testing.T) {
	given := strings.Repeat("a", 95) + "hunter2hunter2"
	if got, want := clientName(&mcp.Implementation{Name: given, Version: "1.0\u00e9\n"}), given+" 1.0?"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := len(clientName(&mcp.Implementation{Name: strings.Repeat("a", 1<<20)})); got != maxClient {
		t.Errorf("of a name without end %d bytes go into the header of each call", got)
	}
}
