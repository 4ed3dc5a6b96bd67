package daemon

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/storage"
)

// Restore replaces the home's database by a backup. It takes the home's lock, so it is
// refused while a daemon runs. The database that was there is kept beside the backups, at
// the path that is returned.
func Restore(ctx context.Context, cfg config.Config, backup string) (kept string, err error) {
	if err := cfg.Home.Prepare(); err != nil {
		return "", err
	}
	held, err := lock(cfg.Home)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	if backup, err = filepath.Abs(backup); err != nil {
		return "", err
	}
	return storage.Restore(ctx, storage.Config{Dir: cfg.Home.Data(), DSN: cfg.DSN, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}, backup)
}
