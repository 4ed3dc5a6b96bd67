package workspacecmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/fault"
)

// trustWord is what is typed to trust a file.
const trustWord = "trust"

func trust(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:      "trust",
		Usage:     "Let a workspace's own settings file run what it says",
		ArgsUsage: "[WORKSPACE]",
		Description: "WORKSPACE is an id, a name or a path. The file .compozy/config.toml in it can be written by whoever commits to the repository. " +
			"What it says about preparing worktrees is shown, and takes effect once you type the word " + trustWord + ". Any change of the file ends that.\n\n" +
			env.Example("compozy workspace trust api"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "revoke", Usage: "Take the trust back."},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			c, err := client(e)
			if err != nil {
				return err
			}
			resp, err := c.Resolve(ctx, &workspacev1.ResolveRequest{Selector: selector(e, cmd), WithTrust: true})
			if err != nil {
				return err
			}
			if cmd.Bool("revoke") {
				return revoke(ctx, e, c, resp.GetWorkspace())
			}
			return decide(ctx, e, c, resp)
		},
	}
}

// decide shows what a file would run and asks whether it may.
func decide(ctx context.Context, e *env.Env, c workspacev1.WorkspaceServiceClient, found *workspacev1.ResolveResponse) error {
	ws, file := found.GetWorkspace(), found.GetTrust()
	told := &workspacev1.TrustResponse{Trust: file}
	if problem := file.GetProblem(); problem != "" {
		return fault.New(fault.InvalidArgument, "%s", problem)
	}
	switch file.GetState() {
	case workspacev1.TrustState_TRUST_STATE_NO_FILE:
		return fault.New(fault.NotFound, "workspace %q has no file .compozy/config.toml in %s", ws.GetName(), ws.GetRoot())
	case workspacev1.TrustState_TRUST_STATE_NOT_NEEDED:
		return e.Report(told, "Nothing in .compozy/config.toml of workspace %q needs trust.", ws.GetName())
	case workspacev1.TrustState_TRUST_STATE_TRUSTED:
		return e.Report(told, "The file .compozy/config.toml of workspace %q is trusted already.", ws.GetName())
	default:
	}
	question := fmt.Sprintf("Type %s to let this take effect until the file changes: ", trustWord)
	if _, err := fmt.Fprintln(e.Err, asks(ws, file)); err != nil {
		return err
	}
	if err := e.Typed(trustWord, question); err != nil {
		return err
	}
	resp, err := c.Trust(ctx, &workspacev1.TrustRequest{WorkspaceId: ws.GetId(), Hash: file.GetHash()})
	if err != nil {
		return err
	}
	return e.Report(resp, "The file .compozy/config.toml of workspace %q is trusted as it is now.", ws.GetName())
}

// asks returns what a file asks for.
func asks(ws *workspacev1.Workspace, file *workspacev1.Trust) string {
	var b strings.Builder
	changed := ""
	if file.GetState() == workspacev1.TrustState_TRUST_STATE_CHANGED {
		changed = ", which has changed since you trusted it,"
	}
	b.WriteString(env.Line(fmt.Sprintf("The file .compozy/config.toml in %s%s asks for this in every new worktree, as you, on this machine:", ws.GetRoot(), changed)) + "\n")
	for _, effect := range file.GetEffects() {
		// Lines stay apart, so that what is shown is all that runs.
		b.WriteString("\n  " + strings.ReplaceAll(env.Text(effect), "\n", "\n    "))
	}
	b.WriteString("\n")
	return b.String()
}

func revoke(ctx context.Context, e *env.Env, c workspacev1.WorkspaceServiceClient, ws *workspacev1.Workspace) error {
	resp, err := c.Distrust(ctx, &workspacev1.DistrustRequest{WorkspaceId: ws.GetId()})
	if err != nil {
		return err
	}
	return e.Report(resp, "The file .compozy/config.toml of workspace %q is not trusted.", ws.GetName())
}
