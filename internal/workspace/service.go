package workspace

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
)

// Service offers the register over the Host API.
type Service struct {
	workspacev1.UnsafeWorkspaceServiceServer

	registry *Registry
}

// NewService returns the service of a registry.
func NewService(r *Registry) *Service { return &Service{registry: r} }

// Add registers a directory.
func (s *Service) Add(ctx context.Context, req *workspacev1.AddRequest) (*workspacev1.AddResponse, error) {
	ws, existing, err := s.registry.Add(ctx, req.GetRoot(), req.GetName())
	if err != nil {
		return nil, err
	}
	return &workspacev1.AddResponse{Workspace: ToProto(ws), Existing: existing}, nil
}

// List returns every workspace.
func (s *Service) List(context.Context, *workspacev1.ListRequest) (*workspacev1.ListResponse, error) {
	resp := &workspacev1.ListResponse{}
	for _, ws := range s.registry.List() {
		resp.Workspaces = append(resp.Workspaces, ToProto(ws))
	}
	return resp, nil
}

// Resolve finds the workspace that a selector means.
func (s *Service) Resolve(ctx context.Context, req *workspacev1.ResolveRequest) (*workspacev1.ResolveResponse, error) {
	ws, chosenBy, err := s.registry.Resolve(FromProto(ctx, req.GetSelector()))
	if err != nil {
		return nil, err
	}
	resp := &workspacev1.ResolveResponse{Workspace: ToProto(ws), ChosenBy: chosenBy}
	if req.GetWithTrust() {
		resp.Trust = trustToProto(s.registry.trust(ws))
	}
	return resp, nil
}

// Rename gives a workspace another name.
func (s *Service) Rename(ctx context.Context, req *workspacev1.RenameRequest) (*workspacev1.RenameResponse, error) {
	ws, err := s.registry.Rename(ctx, req.GetWorkspaceId(), req.GetName())
	if err != nil {
		return nil, err
	}
	return &workspacev1.RenameResponse{Workspace: ToProto(ws)}, nil
}

// Remove takes a workspace out of the register.
func (s *Service) Remove(ctx context.Context, req *workspacev1.RemoveRequest) (*workspacev1.RemoveResponse, error) {
	gone, notices, err := s.registry.Remove(ctx, req.GetWorkspaceId())
	if err != nil {
		return nil, err
	}
	return &workspacev1.RemoveResponse{
		Tasks: int32(gone.Tasks), Memories: int32(gone.Memories), Sessions: int32(gone.Sessions), Messages: int32(gone.Messages), //nolint:gosec // counts of rows of one workspace
		Resources: int32(gone.Resources), Notices: notices, //nolint:gosec // as above
	}, nil
}

// Trust trusts the workspace's own settings file as it is.
func (s *Service) Trust(ctx context.Context, req *workspacev1.TrustRequest) (*workspacev1.TrustResponse, error) {
	t, err := s.registry.SetTrust(ctx, req.GetWorkspaceId(), req.GetHash())
	if err != nil {
		return nil, err
	}
	return &workspacev1.TrustResponse{Trust: trustToProto(t)}, nil
}

// Distrust takes the trust back.
func (s *Service) Distrust(ctx context.Context, req *workspacev1.DistrustRequest) (*workspacev1.DistrustResponse, error) {
	t, err := s.registry.EndTrust(ctx, req.GetWorkspaceId())
	if err != nil {
		return nil, err
	}
	return &workspacev1.DistrustResponse{Trust: trustToProto(t)}, nil
}

func trustToProto(t Trust) *workspacev1.Trust {
	msg := &workspacev1.Trust{State: t.state(), Hash: t.File.Hash, Effects: t.File.Effects}
	if t.Trusted != "" {
		msg.TrustedAt = timestamppb.New(t.At)
	}
	if t.Problem != nil {
		msg.Problem = t.Problem.Error()
	}
	return msg
}

func (t Trust) state() workspacev1.TrustState {
	switch {
	case t.File.Hash == "" && t.Problem == nil:
		return workspacev1.TrustState_TRUST_STATE_NO_FILE
	case len(t.File.Effects) == 0 && t.Problem == nil:
		return workspacev1.TrustState_TRUST_STATE_NOT_NEEDED
	case t.Trusted == "":
		return workspacev1.TrustState_TRUST_STATE_UNTRUSTED
	case t.Trusted != t.File.Hash:
		return workspacev1.TrustState_TRUST_STATE_CHANGED
	default:
		return workspacev1.TrustState_TRUST_STATE_TRUSTED
	}
}

// ToProto returns the workspace as a message.
func ToProto(ws Workspace) *workspacev1.Workspace {
	return &workspacev1.Workspace{Id: ws.ID, Name: ws.Name, Root: ws.Root, CreatedAt: timestamppb.New(ws.CreatedAt)}
}

// FromProto returns the selector that the message of a call holds.
func FromProto(ctx context.Context, sel *workspacev1.Selector) Selector {
	return Selector{Reference: sel.GetReference(), Source: sel.GetSource(), Directory: sel.GetDirectory(), tie: tieOf(ctx)}
}
