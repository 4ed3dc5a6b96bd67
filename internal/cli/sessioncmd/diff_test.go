package sessioncmd

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/cli/env"
)

// paged answers Diff with one page after the other.
type paged struct {
	sessionv1.UnimplementedSessionServiceServer
	pages []*sessionv1.DiffResponse
}

func (p *paged) Diff(_ context.Context, req *sessionv1.DiffRequest) (*sessionv1.DiffResponse, error) {
	return p.pages[len(req.GetCursor())], nil
}

// newCommands returns commands that reach a service, on a terminal with a pager that
// copies what it is given into a file.
func newCommands(t *testing.T, service sessionv1.SessionServiceServer) (c *commands, paged string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	sessionv1.RegisterSessionServiceServer(server, service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	paged = filepath.Join(t.TempDir(), "paged")
	e := &env.Env{
		Out: os.Stderr, Err: os.Stderr, Width: 80, Color: true, Pager: "cat > '" + paged + "'",
		Dial: func(string) (*grpc.ClientConn, error) {
			return grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		},
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return &commands{Env: e}, paged
}

func TestADiffGoesThroughThePagerToItsEnd(t *testing.T) {
	service := &paged{pages: []*sessionv1.DiffResponse{
		{Base: "0123456789abcdef", Added: 3, Files: []*sessionv1.FileChange{{Path: "a.go", Status: "modified", Added: 3}}, Diff: "+one\n+tw", NextCursor: "1"},
		{Files: []*sessionv1.FileChange{{Path: "a.go"}}, Diff: "o\n", NextCursor: "12"},
		{Diff: "+three\n"},
	}}
	c, paged := newCommands(t, service)
	if err := c.diff(t.Context(), nil, &sessionv1.DiffRequest{Id: "s1"}, service.pages[0]); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(paged)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"1 file against 0123456789ab: +3 -0", "modified     a.go  +3 -0", green + "+one", green + "+two", green + "+three"} {
		if !strings.Contains(string(got), part) {
			t.Errorf("%q is not in %q", part, got)
		}
	}
	if strings.Count(string(got), "a.go") != 1 {
		t.Errorf("the files are listed more than once in %q", got)
	}
}

func TestAPagerThatIsLeftEarlyIsNoError(t *testing.T) {
	page := &sessionv1.DiffResponse{Files: []*sessionv1.FileChange{{Path: "a.go"}}, Diff: strings.Repeat("+many lines\n", 10_000), NextCursor: ""}
	c, _ := newCommands(t, &paged{})
	c.Pager = "head -n 1 > /dev/null"
	if err := c.diff(t.Context(), nil, &sessionv1.DiffRequest{Id: "s1"}, page); err != nil {
		t.Error(err)
	}
}
