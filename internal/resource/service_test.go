package resource_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	resourcev1 "compozy.dev/compozy/gen/compozy/resource/v1"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/wire"
)

func TestDocumentComesBackAsItWasPut(t *testing.T) {
	each(t, func(h *home) {
		text := "# デプロイ 🚀\r\n\tcafe\u0301 \\ \"quoted\" '; DROP TABLE resource;-- \ufffd  \n\n"
		made, err := h.Put(h.client(), &resourcev1.PutRequest{
			Kind: document, Name: "docs/手順 v2", Text: text, Labels: []string{" guide ", "100%", "guide"}, Source: new("https://example.com/?a=1"),
		})
		if err != nil {
			h.t.Fatal(err)
		}
		r := made.GetResource()
		if !made.GetCreated() || r.GetVersion() != 1 || r.GetAuthor() != "facade:fac_1" || !ref.IsID("res", r.GetId()) {
			h.t.Errorf("put: got %v", made)
		}
		for _, name := range []string{r.GetId(), "docs/手順 v2", "document/docs/手順 v2", " docs/手順 v2 "} {
			got := h.get(name)
			if got.GetText() != text || got.GetFirstLine() != 1 || got.GetLastLine() != 3 || got.GetTruncated() || got.NextOffset != nil {
				h.t.Errorf("get %q: got %v", name, got)
			}
			if !proto.Equal(got.GetResource(), r) || r.GetTitle() != "デプロイ 🚀" || !slices.Equal(r.GetLabels(), []string{"guide", "100%"}) || r.GetLines() != 3 || int(r.GetSize()) != len(text) {
				h.t.Errorf("get %q: got %v, want %v", name, got.GetResource(), r)
			}
		}
	})
}

func TestPutReplacesTheWholeAndKeepsTheVersions(t *testing.T) {
	each(t, func(h *home) {
		h.put(document, "readme", "one\ntwo\n")
		again, err := h.Put(h.operator(), &resourcev1.PutRequest{Kind: document, Name: "readme", Text: "one\ntwo\n"})
		if err != nil || !again.GetUnchanged() || again.GetResource().GetVersion() != 1 {
			h.t.Errorf("the same text: got %v, %v", again, err)
		}
		changed, err := h.Put(h.agent(), &resourcev1.PutRequest{Kind: document, Name: "readme", Text: "one\nthree\n", ExpectedVersion: new(int32(1))})
		if err != nil || changed.GetUnchanged() || changed.GetCreated() || changed.GetResource().GetVersion() != 2 || changed.GetResource().GetAuthor() != "session:ses_1" {
			h.t.Errorf("another text: got %v, %v", changed, err)
		}
		old, err := h.Get(h.operator(), &resourcev1.GetRequest{Id: "readme", Version: new(int32(1))})
		if err != nil || old.GetText() != "one\ntwo\n" || old.GetVersion() != 1 || old.GetResource().GetVersion() != 2 {
			h.t.Errorf("version 1: got %v, %v", old, err)
		}
		history, err := h.History(h.operator(), &resourcev1.HistoryRequest{Id: "readme"})
		if err != nil || len(history.GetVersions()) != 2 || history.GetVersions()[0].GetAuthor() != "session:ses_1" || history.GetVersions()[1].GetVersion() != 1 || history.GetDiff() != "" {
			h.t.Errorf("history: got %v, %v", history, err)
		}
		diff, err := h.History(h.operator(), &resourcev1.HistoryRequest{Id: "readme", ToVersion: new(int32(2))})
		want := "--- readme (version 1)\n+++ readme (version 2)\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
		if err != nil || diff.GetDiff() != want || len(diff.GetVersions()) != 0 {
			h.t.Errorf("diff: got %q, %v; want %q", diff.GetDiff(), err, want)
		}
		back, err := h.History(h.operator(), &resourcev1.HistoryRequest{Id: "readme", ToVersion: new(int32(1)), FromVersion: new(int32(2))})
		if err != nil || !strings.Contains(back.GetDiff(), "-three\n+two\n") {
			h.t.Errorf("diff backward: got %q, %v", back.GetDiff(), err)
		}
		first, err := h.History(h.operator(), &resourcev1.HistoryRequest{Id: "readme", ToVersion: new(int32(1))})
		if err != nil || !strings.Contains(first.GetDiff(), "+one\n+two\n") {
			h.t.Errorf("diff of the first: got %q, %v", first.GetDiff(), err)
		}
		_, err = h.History(h.operator(), &resourcev1.HistoryRequest{Id: "readme", ToVersion: new(int32(9))})
		h.wantFault("a version that there is not", err, fault.NotFound, "no version 9")
		_, err = h.History(h.operator(), &resourcev1.HistoryRequest{Id: "readme", FromVersion: new(int32(1))})
		h.wantFault("a diff to nowhere", err, fault.InvalidArgument, "to_version")
	})
}

func TestLostUpdatesAreConflicts(t *testing.T) {
	each(t, func(h *home) {
		h.put(document, "readme", "one\n")
		h.put(document, "readme", "two\n")
		_, err := h.Put(h.client(), &resourcev1.PutRequest{Kind: document, Name: "readme", Text: "three\n", ExpectedVersion: new(int32(1))})
		h.wantFault("put", err, fault.Conflict, "document/readme is at version 2, and the change was made for version 1")
		_, err = h.Put(h.client(), &resourcev1.PutRequest{Kind: document, Name: "readme", Text: "three\n", ExpectedVersion: new(int32(0))})
		h.wantFault("put what shall be new", err, fault.Conflict, "exists already")
		_, err = h.Put(h.client(), &resourcev1.PutRequest{Kind: document, Name: "other", Text: "three\n", ExpectedVersion: new(int32(1))})
		h.wantFault("put what is gone", err, fault.NotFound, "document/other")
		_, err = h.Edit(h.client(), &resourcev1.EditRequest{Id: "readme", OldText: "two", NewText: "x", ExpectedVersion: new(int32(1))})
		h.wantFault("edit", err, fault.Conflict, "version 2")
		_, err = h.Rename(h.client(), &resourcev1.RenameRequest{Id: "readme", Name: "x", ExpectedVersion: new(int32(1))})
		h.wantFault("rename", err, fault.Conflict, "version 2")
		if got := h.get("readme").GetText(); got != "two\n" {
			h.t.Errorf("got %q", got)
		}
	})
}

func TestOfManyWritersAtOneVersionOneWins(t *testing.T) {
	each(t, func(h *home) {
		h.put(document, "readme", "start\n")
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for i := range 20 {
			wg.Go(func() {
				_, err := h.Edit(h.client(), &resourcev1.EditRequest{Id: "readme", OldText: "start", NewText: fmt.Sprint("by ", i), ExpectedVersion: new(int32(1))})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if fault.Of(err) != fault.Conflict {
					h.t.Error(err)
				}
			})
		}
		wg.Wait()
		if won != 1 || h.get("readme").GetVersion() != 2 {
			h.t.Errorf("%d won, want 1", won)
		}
	})
}

func TestEditReplacesExactlyOnePlace(t *testing.T) {
	each(t, func(h *home) {
		h.put(document, "readme", "# Setup\n\nmake  test\nmake run\n\tmake run\n日本語\n")
		for _, c := range []struct {
			old, replacement, text string
			first, last            int32
		}{
			{"make  test", "make check\nmake bench", "# Setup\n\nmake check\nmake bench\nmake run\n\tmake run\n日本語\n", 3, 4},
			{"\tmake run\n", "", "# Setup\n\nmake check\nmake bench\nmake run\n日本語\n", 6, 6},
			{"日本", "中国\n", "# Setup\n\nmake check\nmake bench\nmake run\n中国\n語\n", 6, 6},
		} {
			resp, err := h.Edit(h.agent(), &resourcev1.EditRequest{Id: "readme", OldText: c.old, NewText: c.replacement})
			if err != nil {
				h.t.Fatal(err)
			}
			if resp.GetFirstLine() != c.first || resp.GetLastLine() != c.last {
				h.t.Errorf("%q: got lines %d to %d, want %d to %d", c.old, resp.GetFirstLine(), resp.GetLastLine(), c.first, c.last)
			}
			if got := h.get("readme").GetText(); got != c.text {
				h.t.Errorf("%q: got %q, want %q", c.old, got, c.text)
			}
		}
		h.put(document, "twice", "aXa\nb\naXaXa\nsome  words\n")
		for old, want := range map[string]string{
			"aXa":        "3 times, at lines 1, 3, 3", // the last two overlap
			"b\na":       "",
			"nothing":    "is nowhere in document/twice; read it with resources__get",
			"some words": "line 4 differs in blanks alone",
		} {
			_, err := h.Edit(h.operator(), &resourcev1.EditRequest{Id: "twice", OldText: old, NewText: "y", ExpectedVersion: new(int32(1))})
			if want == "" {
				continue // is at version 2 from here on or will be
			}
			if fault.Of(err) != fault.Conflict {
				h.wantFault(old, err, fault.InvalidArgument, want)
			}
		}
		_, err := h.Edit(h.operator(), &resourcev1.EditRequest{Id: "readme", OldText: "語", NewText: "語"})
		h.wantFault("no change", err, fault.InvalidArgument, "nothing would change")
		h.put(document, "short", "x")
		_, err = h.Edit(h.operator(), &resourcev1.EditRequest{Id: "short", OldText: "x", NewText: ""})
		h.wantFault("nothing left", err, fault.InvalidArgument, "blank")
	})
}

func TestPartsHaveTheirRealLines(t *testing.T) {
	each(t, func(h *home) {
		h.put(document, "guide", "intro\n\n# Setup\n\nfirst\n```sh\n# not a heading\n```\n## Linux\nlin\n# Usage\nuse\nC++ & `code`!\n---\nlast")
		for name, want := range map[string]string{
			"guide#Setup":          "3-10 # Setup\n\nfirst\n```sh\n# not a heading\n```\n## Linux\nlin\n",
			"guide#setup":          "3-10 # Setup\n\nfirst\n```sh\n# not a heading\n```\n## Linux\nlin\n",
			"document/guide#linux": "9-10 ## Linux\nlin\n",
			"guide#Usage":          "11-15 # Usage\nuse\nC++ & `code`!\n---\nlast",
			"guide:5-7":            "5-7 first\n```sh\n# not a heading\n",
			"guide:15":             "15-15 last",
			"guide:14-99":          "14-15 ---\nlast",
		} {
			got := h.get(name)
			if s := fmt.Sprintf("%d-%d %s", got.GetFirstLine(), got.GetLastLine(), got.GetText()); s != want {
				h.t.Errorf("%s: got %q, want %q", name, s, want)
			}
		}
		_, err := h.Get(h.operator(), &resourcev1.GetRequest{Id: "guide:16"})
		h.wantFault("a line behind the end", err, fault.InvalidArgument, "has 15 lines")
		_, err = h.Get(h.operator(), &resourcev1.GetRequest{Id: "guide#not a heading"})
		h.wantFault("a section that there is not", err, fault.NotFound, `its headings are "Setup", "Linux", "Usage"`)
		_, err = h.Edit(h.operator(), &resourcev1.EditRequest{Id: "guide:5", OldText: "a", NewText: "b"})
		h.wantFault("a part where a whole is needed", err, fault.InvalidArgument, "a whole is needed")
	})
}

func TestLongTextsAreReadInPieces(t *testing.T) {
	each(t, func(h *home) {
		var b strings.Builder
		for i := range 5000 {
			fmt.Fprintf(&b, "line %d é \"x\" 日本\n", i+1)
		}
		text := b.String()
		h.put(document, "long", text)
		var whole strings.Builder
		offset, line := int32(0), int32(1)
		for range 100 {
			got, err := h.Get(h.operator(), &resourcev1.GetRequest{Id: "long", Offset: offset})
			if err != nil {
				h.t.Fatal(err)
			}
			if out, err := wire.Marshal(got); err != nil || len(out) > 24<<10 || !utf8.ValidString(got.GetText()) {
				h.t.Fatalf("a piece takes %d bytes, %v", len(out), err)
			}
			if got.GetFirstLine() != line {
				h.t.Errorf("the piece at %d begins on line %d, want %d", offset, got.GetFirstLine(), line)
			}
			line += int32(strings.Count(got.GetText(), "\n"))
			whole.WriteString(got.GetText())
			if !got.GetTruncated() {
				break
			}
			offset = got.GetNextOffset()
		}
		if whole.String() != text {
			h.t.Errorf("the pieces are not the text: %d bytes of %d", whole.Len(), len(text))
		}
		h.put(document, "long", strings.ReplaceAll(text, "x", "y"))
		var diff strings.Builder
		offset = 0
		for {
			got, err := h.History(h.operator(), &resourcev1.HistoryRequest{Id: "long", ToVersion: new(int32(2)), Offset: offset})
			if err != nil {
				h.t.Fatal(err)
			}
			diff.WriteString(got.GetDiff())
			if !got.GetTruncated() {
				break
			}
			offset = got.GetNextOffset()
		}
		if n := strings.Count(diff.String(), "\n+line "); n != 5000 {
			h.t.Errorf("the diff has %d new lines, want 5000", n)
		}
		_, err := h.Put(h.operator(), &resourcev1.PutRequest{Kind: document, Name: "large", Text: strings.Repeat("é", 500_001)})
		h.wantFault("too large a text", err, fault.InvalidArgument, "at most 1000000")
	})
}

func TestOnlyTheOperatorWritesWhatIsExecuted(t *testing.T) {
	each(t, func(h *home) {
		h.put(agents, "reviewer", `agent = "claude"`)
		h.put(server, "github", `command = ["gh-mcp"]`)
		h.put(document, "note", "text")
		for who, ctx := range map[string]func() error{
			"client": func() error { return h.refusals(h.client()) },
			"agent":  func() error { return h.refusals(h.agent()) },
		} {
			if err := ctx(); err != nil {
				h.t.Errorf("%s: %v", who, err)
			}
		}
		if got := h.get("reviewer").GetText(); got != `agent = "claude"` {
			h.t.Errorf("got %q", got)
		}
		if _, err := h.Comment(h.client(), &resourcev1.CommentRequest{Id: "reviewer", Text: "it is slow"}); err != nil {
			h.t.Errorf("comment: %v", err)
		}
		if got := h.list(&resourcev1.ListRequest{Kind: []resourcev1.Kind{agents, server}}); got != "mcp_server/github agent/reviewer" && got != "agent/reviewer mcp_server/github" {
			h.t.Errorf("list: got %q", got)
		}
		if _, err := h.Edit(h.operator(), &resourcev1.EditRequest{Id: "reviewer", OldText: "claude", NewText: "codex"}); err != nil {
			h.t.Errorf("the operator: %v", err)
		}
		_, err := h.Edit(h.operator(), &resourcev1.EditRequest{Id: "reviewer", OldText: "codex", NewText: "wrong"})
		h.wantFault("a text that means nothing", err, fault.InvalidArgument, "it is wrong")
		_, err = h.Put(h.operator(), &resourcev1.PutRequest{Kind: server, Name: "x", Text: "wrong"})
		h.wantFault("a text that means nothing", err, fault.InvalidArgument, "it is wrong")
		list, err := h.Configured(h.t.Context(), h.workspace.ID)
		if err != nil || len(list) != 2 || list[0].Name != "reviewer" || list[0].Text != `agent = "codex"` || list[1].Kind != "mcp_server" {
			h.t.Errorf("configured: got %v, %v", list, err)
		}
		if _, err := h.Archive(h.operator(), &resourcev1.ArchiveRequest{Ids: []string{"reviewer"}}); err != nil {
			h.t.Fatal(err)
		}
		_, err = h.Unarchive(h.client(), &resourcev1.UnarchiveRequest{Ids: []string{"reviewer"}})
		h.wantFault("unarchive", err, fault.PermissionDenied, "compozy resource unarchive agent/reviewer")
		if list, err := h.Configured(h.t.Context(), h.workspace.ID); err != nil || len(list) != 1 {
			h.t.Errorf("an archived agent is configured: %v, %v", list, err)
		}
	})
}

func TestATakenNameIsTold(t *testing.T) {
	each(t, func(h *home) {
		if got := h.put(agents, "taken", "x").GetNotice(); got != "it has no effect" {
			h.t.Errorf("got %q", got)
		}
		if got := h.put(document, "taken", "x").GetNotice(); got != "" {
			h.t.Errorf("a document: got %q", got)
		}
	})
}

func TestNamesMeanOneThing(t *testing.T) {
	each(t, func(h *home) {
		h.put(document, "deploy", "d")
		h.put(skill, "deploy", "s")
		h.put(workflow, "release", "w")
		_, err := h.Get(h.operator(), &resourcev1.GetRequest{Id: "deploy"})
		h.wantFault("a name of two", err, fault.InvalidArgument, "document/deploy, skill/deploy")
		if got := h.get("skill/deploy").GetText() + h.get("release").GetText(); got != "sw" {
			h.t.Errorf("got %q", got)
		}
		for name, want := range map[string]string{
			"agent/x": "begins like a reference", "a#b": "names a part", " a": "blank", "\u200b": "blank", "x:5": "names a part",
			ref.NewID("res", storageTime): "looks like an id", "two\nlines": "control character", "a\u202eb": "cannot be seen", "a\u200bb": "cannot be seen",
		} {
			_, err := h.Put(h.operator(), &resourcev1.PutRequest{Kind: document, Name: name, Text: "x"})
			h.wantFault(name, err, fault.InvalidArgument, want)
			_, err = h.Rename(h.operator(), &resourcev1.RenameRequest{Id: "release", Name: name})
			h.wantFault(name, err, fault.InvalidArgument, want)
		}
	})
}

func TestRenameKeepsTheTextAndIsAVersion(t *testing.T) {
	each(t, func(h *home) {
		h.put(document, "a", "text of a")
		h.put(document, "b", "text of b")
		_, err := h.Rename(h.client(), &resourcev1.RenameRequest{Id: "a", Name: "b"})
		h.wantFault("a name that is taken", err, fault.Conflict, `"b" is that of document`)
		for range 2 {
			resp, err := h.Rename(h.client(), &resourcev1.RenameRequest{Id: h.id("a", "c"), Name: "c"})
			if err != nil || resp.GetResource().GetVersion() != 2 || resp.GetResource().GetName() != "c" {
				h.t.Fatalf("got %v, %v", resp, err)
			}
		}
		if got := h.get("c").GetText(); got != "text of a" {
			h.t.Errorf("got %q", got)
		}
		if got := h.search("text"); !strings.Contains(got, "c:1") || strings.Contains(got, "a:1") {
			h.t.Errorf("search: got %q", got)
		}
		_, err = h.Get(h.operator(), &resourcev1.GetRequest{Id: "a"})
		h.wantFault("the old name", err, fault.NotFound, `resource "a" does not exist in this workspace`)
	})
}

func TestArchivedResourcesAreLeftOutAndLeftAlone(t *testing.T) {
	each(t, func(h *home) {
		h.put(document, "a", "words")
		h.put(document, "b", "words")
		for range 2 {
			resp, err := h.Archive(h.agent(), &resourcev1.ArchiveRequest{Ids: []string{"a", "document/a"}})
			if err != nil || len(resp.GetResources()) != 1 || !resp.GetResources()[0].GetArchived() {
				h.t.Fatalf("got %v, %v", resp, err)
			}
		}
		if got := h.list(&resourcev1.ListRequest{}) + " " + h.search("words"); got != "document/b b:1" {
			h.t.Errorf("got %q", got)
		}
		if got := h.list(&resourcev1.ListRequest{Archived: resourcev1.Archived_ARCHIVED_ONLY}); got != "document/a" {
			h.t.Errorf("archived: got %q", got)
		}
		_, err := h.Put(h.operator(), &resourcev1.PutRequest{Kind: document, Name: "a", Text: "x"})
		h.wantFault("put", err, fault.Conflict, "is archived")
		_, err = h.Edit(h.operator(), &resourcev1.EditRequest{Id: "a", OldText: "words", NewText: "x"})
		h.wantFault("edit", err, fault.Conflict, "resources__unarchive")
		if _, err := h.Unarchive(h.agent(), &resourcev1.UnarchiveRequest{Ids: []string{"a"}}); err != nil {
			h.t.Fatal(err)
		}
		if got := h.search("words"); !strings.Contains(got, "a:1") {
			h.t.Errorf("got %q", got)
		}
		_, err = h.Archive(h.operator(), &resourcev1.ArchiveRequest{Ids: []string{"b", "nowhere"}})
		h.wantFault("one that is unknown", err, fault.NotFound, "ids[1]")
		if h.get("b").GetResource().GetArchived() {
			h.t.Error("one was archived though another is unknown")
		}
	})
}

func TestLabelsFilterAndComments(t *testing.T) {
	each(t, func(h *home) {
		h.put(document, "a", "x")
		h.put(document, "b", "x")
		resp, err := h.Label(h.client(), &resourcev1.LabelRequest{Ids: []string{"a", "b"}, AddLabels: []string{"guide", "a, b"}})
		if err != nil || len(resp.GetResources()) != 2 {
			h.t.Fatal(resp, err)
		}
		if _, err := h.Label(h.client(), &resourcev1.LabelRequest{Ids: []string{"b"}, RemoveLabels: []string{"guide"}}); err != nil {
			h.t.Fatal(err)
		}
		if got := h.list(&resourcev1.ListRequest{Labels: []string{"guide", "a, b"}}); got != "document/a" {
			h.t.Errorf("got %q", got)
		}
		if got := h.list(&resourcev1.ListRequest{Labels: []string{"gui"}}); got != "" {
			h.t.Errorf("half a label: got %q", got)
		}
		if v := h.get("a").GetVersion(); v != 1 {
			h.t.Errorf("labels made version %d", v)
		}
		for i := range 30 {
			c, err := h.Comment(h.agent(), &resourcev1.CommentRequest{Id: "a", Text: fmt.Sprint("comment ", i+1)})
			if err != nil || c.GetComment().GetNumber() != int32(i+1) || c.GetComment().GetAuthor() != "session:ses_1" {
				h.t.Fatal(c, err)
			}
		}
		got := h.get("a")
		if n := len(got.GetComments()); n != 20 || got.GetComments()[19].GetText() != "comment 30" || got.GetResource().GetCommentCount() != 30 || got.GetVersion() != 1 {
			h.t.Errorf("got %d comments, %v", n, got.GetResource())
		}
		older, err := h.Get(h.operator(), &resourcev1.GetRequest{Id: "a", CommentsBefore: new(got.GetComments()[0].GetNumber())})
		if err != nil || len(older.GetComments()) != 10 || older.GetComments()[0].GetText() != "comment 1" {
			h.t.Errorf("older: got %v, %v", older.GetComments(), err)
		}
	})
}

func TestSearchFindsLinesInAnyScript(t *testing.T) {
	each(t, func(h *home) {
		h.put(document, "guide", "# Setup\n\nInstall Go first.\n\n# Deployment\n\nDatabases are migrated before the release.\n部署之前先跑迁移。\n")
		h.put(skill, "review", "---\nname: review\ndescription: How we review\n---\n\nRead the tests first.\n")
		h.put(agents, "reviewer", "instructions = \"install everything\"")
		h.elsewhere().put(document, "other", "Install Go first.")
		for query, want := range map[string]string{
			"installing": "guide:3", "migrated database": "guide:7", "迁移": "guide:8", "部": "guide:8", "tests": "review:6",
			`"quoted" OR (syntax* NEAR(`: "", "nothingness": "",
		} {
			if got := h.search(query); got != want {
				h.t.Errorf("%s: got %q, want %q", query, got, want)
			}
		}
		if got := h.search("first", skill); got != "review:6" {
			h.t.Errorf("of one kind: got %q", got)
		}
		resp, err := h.Search(h.operator(), &resourcev1.SearchRequest{Query: "migrated"})
		if err != nil || resp.GetHits()[0].GetSection() != "Deployment" || resp.GetHits()[0].GetText() != "Databases are migrated before the release." {
			h.t.Errorf("got %v, %v", resp, err)
		}
		if got := h.get(resp.GetHits()[0].GetPlace()).GetText(); got != "Databases are migrated before the release.\n" {
			h.t.Errorf("the place holds %q", got)
		}
		_, err = h.Edit(h.operator(), &resourcev1.EditRequest{Id: "guide", OldText: "Install Go", NewText: "Get Rust"})
		if err != nil {
			h.t.Fatal(err)
		}
		if got := h.search("install") + h.search("rust"); got != "guide:3" {
			h.t.Errorf("after an edit: got %q", got)
		}
		_, err = h.Search(h.operator(), &resourcev1.SearchRequest{Query: "x", Kind: []resourcev1.Kind{agents}})
		h.wantFault("a kind that is not searched", err, fault.InvalidArgument, "document, skill or workflow")
		h.put(document, "one line", strings.Repeat("filler words everywhere ", 20_000)+"needle")
		if got := h.search("needle"); got != "one line:1" {
			h.t.Errorf("in a long line: got %q", got)
		}
	})
}

func TestFilesAreReadWhereTheyLie(t *testing.T) {
	each(t, func(h *home) {
		h.file("AGENTS.md", "# Rules\n\nUse tabs.\n")
		h.file(".claude/skills/deploy/SKILL.md", "---\nname: deploy\ndescription: How to deploy\n---\nShip it.\n")
		h.file(".compozy/skills/lint.md", "Run the linter.\n")
		h.file(".compozy/workflows/release.md", "1. tag\xff\x00\n2. push\n")
		h.file("secret.md", "not to be found")
		if err := os.Symlink("/etc/passwd", filepath.Join(h.workspace.Root, "CLAUDE.md")); err != nil {
			h.t.Fatal(err)
		}
		if err := os.Symlink("../../../..", filepath.Join(h.workspace.Root, ".claude/skills/out")); err != nil {
			h.t.Fatal(err)
		}
		if err := syscall.Mkfifo(filepath.Join(h.workspace.Root, ".compozy/skills/pipe.md"), 0o600); err != nil {
			h.t.Fatal(err)
		}
		h.file(".compozy/skills/large.md", strings.Repeat("x", 1_000_001))
		h.put(document, "note", "a record")
		want := "document/note skill/deploy skill/large skill/lint workflow/release document/AGENTS.md"
		if got := h.list(&resourcev1.ListRequest{}); got != want {
			h.t.Errorf("got %q, want %q", got, want)
		}
		for name, want := range map[string]string{
			"AGENTS.md": "# Rules\n\nUse tabs.\n", "AGENTS.md#rules": "# Rules\n\nUse tabs.\n", "AGENTS.md:3": "Use tabs.\n",
			"skill/lint": "Run the linter.\n", ".compozy/workflows/release.md": "1. tag\ufffd\ufffd\n2. push\n", "deploy:5": "Ship it.\n",
		} {
			if got := h.get(name); got.GetText() != want || got.GetVersion() != 0 || got.GetResource().GetPath() == "" {
				h.t.Errorf("%s: got %v, want %q", name, got, want)
			}
		}
		if got := h.get("deploy").GetResource(); got.GetTitle() != "How to deploy" || got.GetId() != ".claude/skills/deploy/SKILL.md" {
			h.t.Errorf("got %v", got)
		}
		if got := h.search("linter"); got != ".compozy/skills/lint.md:1" {
			h.t.Errorf("search: got %q", got)
		}
		for _, name := range []string{"CLAUDE.md", "secret.md", "../secret.md", "/etc/passwd", "pipe"} {
			_, err := h.Get(h.operator(), &resourcev1.GetRequest{Id: name})
			h.wantFault(name, err, fault.NotFound, "does not exist")
		}
		_, err := h.Get(h.operator(), &resourcev1.GetRequest{Id: "large"})
		h.wantFault("large", err, fault.Conflict, "file .compozy/skills/large.md cannot be shown: it is longer than 1000000 bytes")
		_, err = h.Edit(h.operator(), &resourcev1.EditRequest{Id: "AGENTS.md", OldText: "tabs", NewText: "spaces"})
		h.wantFault("edit", err, fault.PermissionDenied, "is a file of the workspace")
		_, err = h.Delete(h.operator(), &resourcev1.DeleteRequest{Ids: []string{"AGENTS.md"}})
		h.wantFault("delete", err, fault.PermissionDenied, "is a file of the workspace")
		h.put(skill, "lint", "Our own.")
		if got := h.get("lint").GetText() + h.get(".compozy/skills/lint.md").GetText(); got != "Our own.Run the linter.\n" {
			h.t.Errorf("a record of the same name: got %q", got)
		}
	})
}

func TestListPagesGoThroughRecordsAndFiles(t *testing.T) {
	each(t, func(h *home) {
		want := map[string]bool{}
		for i := range 60 {
			name := fmt.Sprintf("doc %02d %s", i, strings.Repeat("長", 60))
			h.put(document, name, strings.Repeat("# 長い ", 100))
			want["document/"+name] = true
		}
		for i := range 40 {
			h.file(fmt.Sprintf(".compozy/skills/s%02d.md", i), "x")
			want[fmt.Sprintf("skill/s%02d", i)] = true
		}
		cursor, got := "", 0
		for page := 0; page == 0 || cursor != ""; page++ {
			resp, err := h.List(h.operator(), &resourcev1.ListRequest{Cursor: cursor, Limit: new(int32(50))})
			if err != nil {
				h.t.Fatal(err)
			}
			if out, err := wire.Marshal(resp); err != nil || len(out) > 24<<10 {
				h.t.Errorf("page %d: %d bytes, %v", page, len(out), err)
			}
			for _, r := range resp.GetResources() {
				name := names([]*resourcev1.Resource{r})
				if !want[name] {
					h.t.Errorf("%s is not wanted, or came twice", name)
				}
				delete(want, name)
				got++
			}
			cursor = resp.GetNextCursor()
		}
		if got != 100 || len(want) != 0 {
			h.t.Errorf("got %d rows; missing %v", got, want)
		}
		for _, cursor := range []string{"x", ref.Cursor("memory.list", "1", "2"), ref.Cursor("resources.list", "x", "y"), ref.Cursor("resources.list", "1", "2", "3")} {
			_, err := h.List(h.operator(), &resourcev1.ListRequest{Cursor: cursor})
			h.wantFault("cursor "+cursor, err, fault.InvalidArgument, "cursor")
		}
	})
}

func TestClientKeyWritesOnce(t *testing.T) {
	each(t, func(h *home) {
		ctx := storage.WithKey(h.client(), storage.Key{Method: "put", Key: "k", Hash: "h"})
		req := &resourcev1.PutRequest{Kind: document, Name: "a", Text: "one"}
		if _, err := h.Put(ctx, req); err != nil {
			h.t.Fatal(err)
		}
		h.put(document, "a", "two")
		again, err := h.Put(ctx, req)
		if err != nil || !again.GetUnchanged() || again.GetResource().GetVersion() != 2 || h.get("a").GetText() != "two" {
			h.t.Errorf("put: got %v, %v", again, err)
		}
		ctx = storage.WithKey(h.client(), storage.Key{Method: "comment", Key: "k", Hash: "h"})
		for i := range 2 {
			c, err := h.Comment(ctx, &resourcev1.CommentRequest{Id: "a", Text: "once"})
			if err != nil || c.GetComment().GetNumber() != 1 || c.GetComment().GetText() != "once" || c.GetDeduplicated() != (i == 1) {
				h.t.Errorf("comment: got %v, %v", c, err)
			}
		}
	})
}

func TestEachChangeIsOneEvent(t *testing.T) {
	each(t, func(h *home) {
		ids := []string{h.put(document, "a", "one").GetId()}
		h.put(document, "a", "one")
		h.put(document, "a", "two")
		_, err1 := h.Edit(h.agent(), &resourcev1.EditRequest{Id: "a", OldText: "two", NewText: "three"})
		_, err2 := h.Rename(h.operator(), &resourcev1.RenameRequest{Id: "a", Name: "b"})
		_, err3 := h.Label(h.operator(), &resourcev1.LabelRequest{Ids: ids, AddLabels: []string{"x"}})
		_, err4 := h.Comment(h.operator(), &resourcev1.CommentRequest{Id: "b", Text: "x"})
		_, err5 := h.Archive(h.operator(), &resourcev1.ArchiveRequest{Ids: ids})
		_, err6 := h.Unarchive(h.operator(), &resourcev1.UnarchiveRequest{Ids: ids})
		_, err7 := h.Delete(h.operator(), &resourcev1.DeleteRequest{Ids: append(ids, "unknown")})
		_, err8 := h.Delete(h.operator(), &resourcev1.DeleteRequest{Ids: ids})
		if err1 != nil || err2 != nil || err3 != nil || err4 != nil || err5 != nil || err6 != nil || err7 == nil || err8 != nil {
			h.t.Fatal(err1, err2, err3, err4, err5, err6, err7, err8)
		}
		events, err := event.New(h.db).After(h.t.Context(), h.workspace.ID, 0, 100)
		if err != nil {
			h.t.Fatal(err)
		}
		var got []string
		for _, ev := range events {
			got = append(got, strings.TrimPrefix(ev.Kind, "resource."))
			if ev.Subject != ids[0] {
				h.t.Errorf("got %+v", ev)
			}
		}
		want := []string{"created", "changed", "changed", "renamed", "labelled", "commented", "archived", "unarchived", "deleted"}
		if !slices.Equal(got, want) {
			h.t.Errorf("got %q, want %q", got, want)
		}
		_, err = h.Get(h.operator(), &resourcev1.GetRequest{Id: ids[0]})
		h.wantFault("what was deleted", err, fault.NotFound, "does not exist")
	})
}

func TestAnotherWorkspaceIsAnsweredLikeNothing(t *testing.T) {
	each(t, func(h *home) {
		r := h.put(document, "secret", "words of one workspace")
		other := h.elsewhere()
		for _, name := range []string{r.GetId(), "secret", "document/secret"} {
			_, err := other.Get(other.operator(), &resourcev1.GetRequest{Id: name})
			h.wantFault(name, err, fault.NotFound, fmt.Sprintf("resource %q does not exist in this workspace", name))
		}
		if got := other.search("words") + other.list(&resourcev1.ListRequest{}); got != "" {
			h.t.Errorf("got %q", got)
		}
	})
}

func TestPurgeDeletesOneWorkspace(t *testing.T) {
	each(t, func(h *home) {
		other := h.elsewhere()
		h.put(document, "a", "shared words here")
		h.put(agents, "b", "x")
		other.put(document, "a", "shared words there")
		var n int
		err := h.db.Do(h.t.Context(), func(tx *storage.Tx) (err error) {
			n, err = h.Purge(tx, h.workspace.ID)
			return err
		})
		if err != nil || n != 2 {
			h.t.Errorf("got %d, %v, want 2", n, err)
		}
		if got := h.search("shared") + h.list(&resourcev1.ListRequest{Archived: resourcev1.Archived_ARCHIVED_INCLUDE}); got != "" {
			h.t.Errorf("left: %q", got)
		}
		if got := other.search("shared"); got != "a:1" {
			h.t.Errorf("in the other workspace: got %q", got)
		}
	})
}

func TestOldVersionsMakeRoom(t *testing.T) {
	each(t, func(h *home) {
		for i := range 205 {
			h.put(document, "log", fmt.Sprint("entry ", i+1))
		}
		cursor, n, last := "", 0, int32(0)
		for page := 0; page == 0 || cursor != ""; page++ {
			resp, err := h.History(h.operator(), &resourcev1.HistoryRequest{Id: "log", Cursor: cursor})
			if err != nil {
				h.t.Fatal(err)
			}
			for _, v := range resp.GetVersions() {
				n, last = n+1, v.GetVersion()
			}
			cursor = resp.GetNextCursor()
		}
		if n != 200 || last != 6 {
			h.t.Errorf("got %d versions down to %d, want 200 down to 6", n, last)
		}
		_, err := h.Get(h.operator(), &resourcev1.GetRequest{Id: "log", Version: new(int32(5))})
		h.wantFault("one that is not kept", err, fault.NotFound, "not kept any more")
	})
}

func TestReindexFindsWhatIsThere(t *testing.T) {
	each(t, func(h *home) {
		h.put(document, "a", "findable words")
		if err := h.Reindex(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
		if got := h.search("findable"); got != "a:1" {
			h.t.Errorf("got %q", got)
		}
	})
}
