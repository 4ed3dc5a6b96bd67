package facade

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/workspace"
)

// Grant is what a facade may do.
type Grant struct {
	// Scope is the highest scope of a method it may call.
	Scope toolv1.Scope
	// AllowDestructive says whether it may call methods that destroy.
	AllowDestructive bool
	// Methods are the full names of the methods it may call.
	Methods map[string]bool
	// Reads and Writes bound how often it calls.
	Reads, Writes *rate.Limiter
	// Notices tell what was asked for and not granted.
	Notices []string
}

// Service offers Attach over the Host API.
type Service struct {
	facadev1.UnsafeFacadeServiceServer

	cfg ServiceConfig
}

// ServiceConfig is what the service needs. All fields are required.
type ServiceConfig struct {
	// Registry holds the facades.
	Registry *Registry
	// Version is the daemon's.
	Version string
	// Resolve finds the workspace that a selector means, and says how it was chosen.
	Resolve func(workspace.Selector) (workspace.Workspace, string, error)
	// Grant says what a relay that asks for a scope gets in a workspace.
	Grant func(ctx context.Context, ws workspace.Workspace, scope toolv1.Scope, destroy bool) (Grant, error)
	// Conn returns the number of the connection that a call arrived on.
	Conn func(ctx context.Context) uint64
}

// NewService returns the service.
func NewService(cfg ServiceConfig) *Service { return &Service{cfg: cfg} }

// Attach binds the connection to a workspace for as long as the stream is open.
func (s *Service) Attach(req *facadev1.AttachRequest, stream grpc.ServerStreamingServer[facadev1.AttachResponse]) error {
	ctx := stream.Context()
	if err := compatible(s.cfg.Version, req.GetVersion()); err != nil {
		return err
	}
	ws, chosenBy, err := s.cfg.Resolve(workspace.FromProto(ctx, req.GetSelector()))
	if err != nil {
		return err
	}
	grant, err := s.cfg.Grant(ctx, ws, req.GetScope(), req.GetAllowDestructive())
	if err != nil {
		return err
	}
	secret := req.GetSecret()
	var f *Facade
	if req.GetFacadeId() != "" {
		f, err = s.cfg.Registry.Resume(ctx, s.cfg.Conn(ctx), ws, grant, req.GetChanges(), req.GetFacadeId(), secret)
	} else {
		f, secret, err = s.cfg.Registry.Attach(ctx, s.cfg.Conn(ctx), ws, grant, req.GetChanges())
	}
	if err != nil {
		return err
	}
	// Sending fails only when the stream is over, which Wait then sees.
	send := func(resp *facadev1.AttachResponse) { _ = stream.Send(resp) }
	send(&facadev1.AttachResponse{Event: &facadev1.AttachResponse_Attached{Attached: s.attached(f, secret, chosenBy)}})
	return s.cfg.Registry.Wait(ctx, f, send)
}

func (s *Service) attached(f *Facade, secret, chosenBy string) *facadev1.Attached {
	return &facadev1.Attached{
		FacadeId: f.ID, Secret: secret, Workspace: workspace.ToProto(f.Workspace), ChosenBy: chosenBy,
		Principal: f.Principal().String(), Scope: f.Grant.Scope, AllowDestructive: f.Grant.AllowDestructive,
		Methods: slices.Sorted(maps.Keys(f.Grant.Methods)), Version: s.cfg.Version, Notices: f.Grant.Notices,
	}
}

// compatible refuses a relay that is more than one minor version away.
func compatible(daemon, relay string) error {
	dMajor, dMinor, err := parse(daemon)
	if err != nil {
		return err
	}
	rMajor, rMinor, err := parse(relay)
	if err != nil {
		return fault.Invalid(fault.Field{Path: "version", Problem: fmt.Sprintf("%q is no version, such as 0.1.0", relay)})
	}
	if dMajor == rMajor && dMinor-rMinor <= 1 && rMinor-dMinor <= 1 {
		return nil
	}
	older := "the relay; restart the MCP client with the new compozy"
	if dMajor < rMajor || dMajor == rMajor && dMinor < rMinor {
		older = "the daemon; run: compozy daemon stop && compozy daemon start"
	}
	return fault.New(fault.Conflict, "the daemon is version %s and the relay %s; they may be one minor version apart. The older one is %s", daemon, relay, older)
}

func parse(version string) (major, minor int, err error) {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	if major, err = strconv.Atoi(first); err != nil {
		return 0, 0, err
	}
	minor, err = strconv.Atoi(second)
	return major, minor, err
}
