package workspace_test

import (
	"os"
	"path/filepath"
	"testing"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/workspace"
)

func TestAFileIsTrustedAsItWasSeen(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		r := open(t, db, "n")
		ws := add(t, r, mkdir(t, t.TempDir(), "api"), "")
		service := workspace.NewService(r)
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(ws.Root, "file"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		trust := func(hash string) error {
			_, err := service.Trust(t.Context(), &workspacev1.TrustRequest{WorkspaceId: ws.ID, Hash: hash})
			return err
		}
		check := func(want workspacev1.TrustState) *workspacev1.Trust {
			t.Helper()
			resp, err := service.Resolve(t.Context(), &workspacev1.ResolveRequest{Selector: &workspacev1.Selector{Reference: ws.ID}, WithTrust: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := resp.GetTrust(); got.GetState() != want || (got.GetTrustedAt() != nil) != (want == workspacev1.TrustState_TRUST_STATE_TRUSTED || want == workspacev1.TrustState_TRUST_STATE_CHANGED) {
				t.Errorf("got %v, want %v", got, want)
			}
			return resp.GetTrust()
		}

		check(workspacev1.TrustState_TRUST_STATE_NO_FILE)
		checkFault(t, trust("hash of x"), fault.NotFound, "no settings file")
		write("")
		check(workspacev1.TrustState_TRUST_STATE_NOT_NEEDED)
		write("broken")
		if got := check(workspacev1.TrustState_TRUST_STATE_UNTRUSTED); got.GetProblem() != "the file is broken" {
			t.Errorf("got problem %q", got.GetProblem())
		}
		checkFault(t, trust("hash of broken"), fault.InvalidArgument, "the file is broken")
		write("a")
		seen := check(workspacev1.TrustState_TRUST_STATE_UNTRUSTED)
		if got := seen.GetEffects(); len(got) != 1 || got[0] != "run a" {
			t.Errorf("got effects %q", got)
		}

		// What nobody has looked at is not trusted.
		write("b")
		checkFault(t, trust(seen.GetHash()), fault.Conflict, "has changed since it was shown")
		check(workspacev1.TrustState_TRUST_STATE_UNTRUSTED)

		if err := trust("hash of b"); err != nil {
			t.Fatal(err)
		}
		check(workspacev1.TrustState_TRUST_STATE_TRUSTED)
		write("c")
		check(workspacev1.TrustState_TRUST_STATE_CHANGED)
		if err := trust("hash of c"); err != nil {
			t.Fatal(err)
		}
		check(workspacev1.TrustState_TRUST_STATE_TRUSTED)
		if got, err := open(t, db, "n").Get(ws.ID); err != nil || got.Trusted != "hash of c" || got.TrustedAt.IsZero() {
			t.Errorf("read again: got %+v, %v", got, err)
		}
		// Another machine has another directory, and a file of its own in it.
		if got, err := open(t, db, "elsewhere").Get(ws.ID); err != nil || got.Trusted != "" {
			t.Errorf("on another node: got %+v, %v", got, err)
		}

		for range 2 {
			if _, err := service.Distrust(t.Context(), &workspacev1.DistrustRequest{WorkspaceId: ws.ID}); err != nil {
				t.Fatal(err)
			}
			check(workspacev1.TrustState_TRUST_STATE_UNTRUSTED)
		}
		if got, err := open(t, db, "n").Get(ws.ID); err != nil || got.Trusted != "" || !got.TrustedAt.IsZero() {
			t.Errorf("read again without trust: got %+v, %v", got, err)
		}

		_, err := service.Trust(t.Context(), &workspacev1.TrustRequest{WorkspaceId: "ws_none", Hash: "x"})
		checkFault(t, err, fault.NotFound)
		_, err = service.Distrust(t.Context(), &workspacev1.DistrustRequest{WorkspaceId: "ws_none"})
		checkFault(t, err, fault.NotFound)
	})
}

func TestTrustGoesWithTheWorkspace(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		r := open(t, db, "n")
		ws := add(t, r, mkdir(t, t.TempDir(), "api"), "")
		if err := os.WriteFile(filepath.Join(ws.Root, "file"), []byte("a"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.SetTrust(t.Context(), ws.ID, "hash of a"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Remove(t.Context(), ws.ID); err != nil {
			t.Fatal(err)
		}
		if again := add(t, r, ws.Root, ""); again.Trusted != "" {
			t.Errorf("registered again: got %+v", again)
		}
	})
}
