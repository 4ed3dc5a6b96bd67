package daemon

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/facade"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// service tells about the daemon itself.
type service struct {
	daemonv1.UnsafeDaemonServiceServer

	cfg        config.Config
	db         *storage.DB
	workspaces *workspace.Registry
	facades    *facade.Registry
	socket     string
	started    time.Time
	stop       func()
	now        func() time.Time
}

// Status tells what runs, where, and since when.
func (s *service) Status(ctx context.Context, _ *daemonv1.StatusRequest) (*daemonv1.StatusResponse, error) {
	engine := "sqlite"
	if s.cfg.DSN != "" {
		engine = "postgres"
	}
	resp := &daemonv1.StatusResponse{
		Pid: int32(os.Getpid()), Version: config.Version, Home: s.cfg.Home.Dir, Socket: s.socket, //nolint:gosec // a pid fits
		StartedAt: timestamppb.New(s.started), Storage: engine, Facades: int32(s.facades.Count()), //nolint:gosec // connections fit
	}
	if auth.From(ctx).Kind == auth.Session {
		return resp, nil // the rest tells of other workspaces
	}
	resp.Notices = s.strayTables()
	for _, ws := range s.workspaces.List() {
		resp.Workspaces++
		authority, err := s.cfg.Settings.Authority(ws.Name, ws.Root, ws.Trusted)
		if err != nil {
			authority.Notices = []string{err.Error()}
		}
		for _, n := range authority.Notices {
			resp.Notices = append(resp.Notices, fmt.Sprintf("workspace %q: %s", ws.Name, n))
		}
	}
	return resp, nil
}

// strayTables returns a notice for each table of the settings that names no workspace: a
// misspelt one restricts nothing.
func (s *service) strayTables() []string {
	known := map[string]bool{}
	for _, ws := range s.workspaces.List() {
		known[ws.Name] = true
	}
	var notices []string
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Settings.Workspace)) {
		if !known[name] {
			notices = append(notices, fmt.Sprintf("%s: [workspace.%s] names no registered workspace, so it has no effect", s.cfg.Home.Settings(), name))
		}
	}
	return notices
}

// Stop ends the daemon after this call is answered.
func (s *service) Stop(context.Context, *daemonv1.StopRequest) (*daemonv1.StopResponse, error) {
	s.stop()
	return &daemonv1.StopResponse{Pid: int32(os.Getpid())}, nil //nolint:gosec // a pid fits
}

// Backup writes a copy of the database to a new file.
func (s *service) Backup(ctx context.Context, req *daemonv1.BackupRequest) (*daemonv1.BackupResponse, error) {
	path := req.GetPath()
	if path == "" {
		path = filepath.Join(s.cfg.Home.Data(), "backups", "manual-"+s.now().UTC().Format("20060102T150405.000Z")+".db")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("make directory for backups: %w", err)
		}
	}
	if !filepath.IsAbs(path) {
		return nil, fault.Invalid(fault.Field{Path: "path", Problem: fmt.Sprintf("%q is no absolute path", path)})
	}
	if err := s.db.Backup(ctx, path); err != nil {
		return nil, fmt.Errorf("back up to %s: %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("look at backup: %w", err)
	}
	return &daemonv1.BackupResponse{Path: path, Size: info.Size()}, nil
}
