package memory_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/wire"
)

func TestEntryComesBackAsItWasStored(t *testing.T) {
	each(t, func(h *home) {
		want := &memoryv1.Entry{
			Key: "デプロイ", Text: "  デプロイ手順 🚀\r\n\tcafe\u0301 \\ \"quoted\" '; DROP TABLE memory;-- \ufffd  ",
			Kind: memoryv1.Kind_KIND_DECISION, Tags: []string{"ops", `a","b`, "100%"}, Confidence: 0.25, Severity: memoryv1.Severity_SEVERITY_CRITICAL,
			About:  &memoryv1.About{Task: "t7", Session: "ses_x", Path: "docs/Ünïcode.md"},
			Status: memoryv1.Status_STATUS_OBSERVED, Source: "https://example.com/?a=1&b=2", Author: "facade:fac_1", Agent: "reviewer", Version: 1,
		}
		stored, err := h.Store(h.as(auth.Principal{Kind: auth.Facade, ID: "fac_1"}), &memoryv1.StoreRequest{
			Key: want.Key, Text: want.Text, Kind: want.Kind, Tags: want.Tags, Confidence: &want.Confidence, Severity: want.Severity,
			About: want.About, Source: want.Source, Agent: " Reviewer ",
		})
		if err != nil {
			h.t.Fatal(err)
		}
		ignore := protocmp.IgnoreFields(&memoryv1.Entry{}, "id", "created_at", "updated_at")
		for _, name := range []string{stored.GetEntry().GetId(), "デプロイ"} {
			got := h.get(name)
			if diff := cmp.Diff(got, want, protocmp.Transform(), ignore); diff != "" {
				h.t.Errorf("get %q (-got +want):\n%s", name, diff)
			}
			if got.GetId() != stored.GetEntry().GetId() || got.GetCreatedAt().AsTime().IsZero() || !proto.Equal(got.GetCreatedAt(), got.GetUpdatedAt()) {
				h.t.Errorf("get %q: got id %q, times %v and %v", name, got.GetId(), got.GetCreatedAt(), got.GetUpdatedAt())
			}
		}
	})
}

func TestWhatIsLeftOutHasADefaultAndZeroStaysZero(t *testing.T) {
	each(t, func(h *home) {
		e := h.store("a")
		if e.GetKind() != memoryv1.Kind_KIND_FACT || e.GetConfidence() != 0.8 || e.GetSeverity() != memoryv1.Severity_SEVERITY_UNSPECIFIED {
			h.t.Errorf("got %v", e)
		}
		if e := h.storeEntry(&memoryv1.StoreRequest{Text: "b", Confidence: proto.Float64(0)}).GetEntry(); e.GetConfidence() != 0 {
			h.t.Errorf("confidence: got %v, want 0", e.GetConfidence())
		}
		resp, err := h.Store(h.agent("ses_1"), &memoryv1.StoreRequest{Text: "c"})
		if err != nil {
			h.t.Fatal(err)
		}
		if e := resp.GetEntry(); e.GetStatus() != memoryv1.Status_STATUS_CANDIDATE || e.GetAuthor() != "session:ses_1" {
			h.t.Errorf("an agent's entry: got %v by %q, want a candidate by session:ses_1", e.GetStatus(), e.GetAuthor())
		}
	})
}

func TestSameTextIsOneEntry(t *testing.T) {
	each(t, func(h *home) {
		first := h.storeEntry(&memoryv1.StoreRequest{Text: "The cafe\u0301 is closed.", Agent: "bot"})
		if first.GetDeduplicated() {
			h.t.Error("the first was deduplicated")
		}
		for what, c := range map[string]struct {
			req  *memoryv1.StoreRequest
			same bool
		}{
			"again":          {&memoryv1.StoreRequest{Text: "The cafe\u0301 is closed.", Agent: "bot", Tags: []string{"x"}}, true},
			"blanks around":  {&memoryv1.StoreRequest{Text: "\n The cafe\u0301 is closed. ", Agent: "bot"}, true},
			"composed":       {&memoryv1.StoreRequest{Text: "The caf\u00e9 is closed.", Agent: "bot"}, true},
			"agent's case":   {&memoryv1.StoreRequest{Text: "The cafe\u0301 is closed.", Agent: "Bot"}, true},
			"named fact":     {&memoryv1.StoreRequest{Text: "The cafe\u0301 is closed.", Agent: "bot", Kind: memoryv1.Kind_KIND_FACT}, true},
			"another kind":   {&memoryv1.StoreRequest{Text: "The cafe\u0301 is closed.", Agent: "bot", Kind: memoryv1.Kind_KIND_FINDING}, false},
			"another agent":  {&memoryv1.StoreRequest{Text: "The cafe\u0301 is closed.", Agent: "other"}, false},
			"everybody":      {&memoryv1.StoreRequest{Text: "The cafe\u0301 is closed."}, false},
			"another letter": {&memoryv1.StoreRequest{Text: "The cafe is closed.", Agent: "bot"}, false},
			"another case":   {&memoryv1.StoreRequest{Text: "the cafe\u0301 is closed.", Agent: "bot"}, false},
		} {
			resp := h.storeEntry(c.req)
			if got := resp.GetEntry().GetId() == first.GetEntry().GetId(); got != c.same || resp.GetDeduplicated() != c.same {
				h.t.Errorf("%s: same entry %v, deduplicated %v, want %v", what, got, resp.GetDeduplicated(), c.same)
			}
		}
		if e := h.get(first.GetEntry().GetId()); e.GetVersion() != 1 || len(e.GetTags()) != 0 {
			h.t.Errorf("the entry changed: %v", e)
		}
		if elsewhere := h.elsewhere().storeEntry(&memoryv1.StoreRequest{Text: "The cafe\u0301 is closed.", Agent: "bot"}); elsewhere.GetDeduplicated() {
			h.t.Error("an entry of another workspace was found")
		}
	})
}

func TestTwentyWritersOfOneTextStoreOneEntry(t *testing.T) {
	each(t, func(h *home) {
		var mu sync.Mutex
		ids := map[string]int{}
		fresh := 0
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				resp, err := h.Store(h.operator(), &memoryv1.StoreRequest{Text: "written by many at once"})
				if err != nil {
					h.t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				ids[resp.GetEntry().GetId()]++
				if !resp.GetDeduplicated() {
					fresh++
				}
			})
		}
		wg.Wait()
		if len(ids) != 1 || fresh != 1 {
			h.t.Errorf("got %d ids, %d of them new, want 1 and 1", len(ids), fresh)
		}
	})
}

func TestArchivedEntryComesBackWhenItIsStoredAgain(t *testing.T) {
	each(t, func(h *home) {
		e := h.store("the gate is on port 4711")
		if _, err := h.Archive(h.operator(), &memoryv1.ArchiveRequest{Ids: []string{e.GetId()}}); err != nil {
			h.t.Fatal(err)
		}
		resp := h.storeEntry(&memoryv1.StoreRequest{Text: "the gate is on port 4711"})
		if got := resp.GetEntry(); got.GetId() != e.GetId() || !resp.GetDeduplicated() || got.GetArchived() {
			h.t.Errorf("got %v, deduplicated %v", got, resp.GetDeduplicated())
		}
		if got := h.recall("4711"); got != e.GetText() {
			h.t.Errorf("recalled %q", got)
		}
	})
}

func TestEntriesThatReadAlikeAreListedAndNotBlocked(t *testing.T) {
	each(t, func(h *home) {
		h.store("Deploys go out on Fridays after the nightly build has passed.")
		h.store("The nightly build takes forty minutes on the small runner.")
		h.elsewhere().store("deploys go out on fridays after the nightly build has passed")
		h.storeEntry(&memoryv1.StoreRequest{Text: "Deploys go out on Fridays after the nightly build has passed!", Agent: "somebody"})
		check := func(text string, want ...string) {
			h.t.Helper()
			resp := h.storeEntry(&memoryv1.StoreRequest{Text: text})
			var got []string
			for _, s := range resp.GetSimilar() {
				got = append(got, s.GetText())
			}
			slices.Sort(got)
			slices.Sort(want)
			if resp.GetDeduplicated() || !slices.Equal(got, want) {
				h.t.Errorf("%q: deduplicated %v, similar %q, want %q", text, resp.GetDeduplicated(), got, want)
			}
		}
		first := "Deploys go out on Fridays after the nightly build has passed."
		check("deploys  go out on FRIDAYS after the nightly build has passed", first)
		check("Deploys go out on Mondays after the nightly build has passed.", first, "deploys  go out on FRIDAYS after the nightly build has passed")
		check("Releases wait for the manual check of the staging system.")
		check("!!!")
		for i := range 8 {
			h.store(fmt.Sprintf("worker %d needs a disk of its own and a steady clock to run", i))
		}
		resp := h.storeEntry(&memoryv1.StoreRequest{Text: "worker 9 needs a disk of its own and a steady clock to run " + strings.Repeat("再", 300)})
		if len(resp.GetSimilar()) != 5 {
			h.t.Errorf("got %d similar entries, want 5", len(resp.GetSimilar()))
		}
	})
}

func TestCallWithAKeyIsAnsweredFromItsFirstAnswer(t *testing.T) {
	each(t, func(h *home) {
		ctx := storage.WithKey(h.operator(), storage.Key{Method: "Store", Key: "k", Hash: "1"})
		first, err := h.Store(ctx, &memoryv1.StoreRequest{Text: "once"})
		if err != nil || first.GetDeduplicated() {
			h.t.Fatalf("got %v, %v", first, err)
		}
		h.update(&memoryv1.UpdateRequest{Id: first.GetEntry().GetId(), Text: new("changed since")})
		again, err := h.Store(ctx, &memoryv1.StoreRequest{Text: "once"})
		if err != nil || !again.GetDeduplicated() || again.GetEntry().GetId() != first.GetEntry().GetId() || again.GetEntry().GetText() != "changed since" {
			h.t.Errorf("again: got %v, %v", again, err)
		}
		if _, err := h.Forget(h.operator(), &memoryv1.ForgetRequest{Ids: []string{first.GetEntry().GetId()}}); err != nil {
			h.t.Fatal(err)
		}
		_, err = h.Store(ctx, &memoryv1.StoreRequest{Text: "once"})
		h.wantFault("after it was forgotten", err, fault.NotFound, "another client_key")
	})
}

func TestWhatCannotBeStoredIsRefusedByField(t *testing.T) {
	each(t, func(h *home) {
		for _, c := range []struct {
			req    *memoryv1.StoreRequest
			fields string
		}{
			{&memoryv1.StoreRequest{Text: " \n\t"}, "text"},
			{&memoryv1.StoreRequest{Text: "\u200b\u2060\ufeff"}, "text"},
			{&memoryv1.StoreRequest{Text: "a", Tags: []string{"a", " ", "b\nc"}, Key: ref.NewID("mem", time.Now())}, "key tags[1] tags[2]"},
			{&memoryv1.StoreRequest{Text: "a", Key: "readme#setup"}, "key"},
			{&memoryv1.StoreRequest{Text: "a", Key: "lines:5-7"}, "key"},
			{&memoryv1.StoreRequest{Text: "a", Key: " padded"}, "key"},
			{&memoryv1.StoreRequest{Text: "a", Key: "null"}, "key"},
		} {
			_, err := h.Store(h.operator(), c.req)
			h.wantFields(c.req.String(), err, fault.InvalidArgument, c.fields)
		}
		if got := h.list(&memoryv1.ListRequest{}); got != "" {
			h.t.Errorf("something was stored: %s", got)
		}
	})
}

// wantFields checks the kind of an error and the paths of its fields, sorted.
func (h *home) wantFields(what string, err error, kind fault.Kind, paths string) {
	h.t.Helper()
	var got []string
	if err != nil {
		for _, f := range fault.As(err).Fields {
			got = append(got, f.Path)
		}
	}
	slices.Sort(got)
	if fault.Of(err) != kind || strings.Join(got, " ") != paths {
		h.t.Errorf("%s: got %v (%v) about %s, want %v about %s", what, err, fault.Of(err), got, kind, paths)
	}
}

func TestKeyNamesOneEntry(t *testing.T) {
	each(t, func(h *home) {
		first := h.storeEntry(&memoryv1.StoreRequest{Text: "one", Key: "fix: the build"}).GetEntry()
		_, err := h.Store(h.operator(), &memoryv1.StoreRequest{Text: "two", Key: "fix: the build"})
		h.wantFault("store", err, fault.Conflict, first.GetId())
		second := h.store("two")
		_, err = h.Update(h.operator(), &memoryv1.UpdateRequest{Id: second.GetId(), Key: new("fix: the build")})
		h.wantFault("update", err, fault.Conflict, first.GetId())
		h.elsewhere().storeEntry(&memoryv1.StoreRequest{Text: "two", Key: "fix: the build"})
		if got := h.get(" fix: the build ").GetId(); got != first.GetId() {
			h.t.Errorf("got %q, want %q", got, first.GetId())
		}
		h.update(&memoryv1.UpdateRequest{Id: "fix: the build", Clear: []string{"key"}})
		h.update(&memoryv1.UpdateRequest{Id: second.GetId(), Key: new("fix: the build")})
		if got := h.get("fix: the build").GetId(); got != second.GetId() {
			h.t.Errorf("after the key moved: got %q, want %q", got, second.GetId())
		}
	})
}

func TestUnknownAndForeignNamesAreAnsweredAlike(t *testing.T) {
	each(t, func(h *home) {
		foreign := h.elsewhere().storeEntry(&memoryv1.StoreRequest{Text: "secret", Key: "there"}).GetEntry()
		for _, name := range []string{foreign.GetId(), "there", ref.NewID("mem", time.Now()), "mem_", "*", "%", "a", ref.NewID("tsk", time.Now())} {
			want := fmt.Sprintf("memory %q does not exist in this workspace", name)
			_, err := h.Get(h.operator(), &memoryv1.GetRequest{Id: name})
			if fault.Of(err) != fault.NotFound || err.Error() != want {
				h.t.Errorf("get: got %v, want %s", err, want)
			}
			_, err = h.Update(h.operator(), &memoryv1.UpdateRequest{Id: name, Text: new("x")})
			if fault.Of(err) != fault.NotFound || err.Error() != want {
				h.t.Errorf("update: got %v, want %s", err, want)
			}
			_, errArchive := h.Archive(h.operator(), &memoryv1.ArchiveRequest{Ids: []string{name}})
			_, errUnarchive := h.Unarchive(h.operator(), &memoryv1.UnarchiveRequest{Ids: []string{name}})
			_, errForget := h.Forget(h.operator(), &memoryv1.ForgetRequest{Ids: []string{name}})
			for what, err := range map[string]error{"archive": errArchive, "unarchive": errUnarchive, "forget": errForget} {
				h.wantFault(what, err, fault.NotFound, "ids[0]: "+want)
			}
		}
		for _, name := range []string{"there#part", foreign.GetId() + ":5", "", "null"} {
			_, err := h.Get(h.operator(), &memoryv1.GetRequest{Id: name})
			h.wantFault("get "+name, err, fault.InvalidArgument, "")
		}
	})
}

func TestForgetIsAllOrNothing(t *testing.T) {
	each(t, func(h *home) {
		a, b := h.store("first thing"), h.storeEntry(&memoryv1.StoreRequest{Text: "second thing", Key: "two"}).GetEntry()
		_, err := h.Forget(h.operator(), &memoryv1.ForgetRequest{Ids: []string{a.GetId(), "typo", "two", a.GetId()[:10]}})
		h.wantFields("two are unknown", err, fault.NotFound, "ids[1] ids[3]")
		_, err = h.Forget(h.operator(), &memoryv1.ForgetRequest{Ids: []string{a.GetId(), "two:5-7"}})
		h.wantFields("a part", err, fault.InvalidArgument, "ids[1]")
		if got := h.recall("thing"); !strings.Contains(got, "first") || !strings.Contains(got, "second") {
			h.t.Errorf("after refusals: recalled %q", got)
		}
		resp, err := h.Forget(h.operator(), &memoryv1.ForgetRequest{Ids: []string{"two", a.GetId(), b.GetId()}})
		if err != nil || !slices.Equal(resp.GetForgotten(), []string{b.GetId(), a.GetId()}) {
			h.t.Errorf("got %v, %v", resp, err)
		}
		if got := h.recall("thing"); got != "" {
			h.t.Errorf("still recalled: %q", got)
		}
		again := h.storeEntry(&memoryv1.StoreRequest{Text: "second thing", Key: "two"})
		if again.GetDeduplicated() || again.GetEntry().GetId() == b.GetId() {
			h.t.Errorf("stored again: got %v", again)
		}
	})
}

func TestUpdateWritesOnlyWhatIsGiven(t *testing.T) {
	each(t, func(h *home) {
		stored := h.storeEntry(&memoryv1.StoreRequest{
			Text: "text", Kind: memoryv1.Kind_KIND_FAILURE, Tags: []string{"a", "b"}, Confidence: new(0.5), Severity: memoryv1.Severity_SEVERITY_HIGH,
			About: &memoryv1.About{Task: "t1", Path: "p"}, Source: "s", Key: "k",
		}).GetEntry()
		for _, c := range []struct {
			name   string
			req    *memoryv1.UpdateRequest
			change func(*memoryv1.Entry)
		}{
			{"nothing", &memoryv1.UpdateRequest{}, func(*memoryv1.Entry) {}},
			{"the same", &memoryv1.UpdateRequest{Text: new("text"), AddTags: []string{"b"}, RemoveTags: []string{"z"}, Key: new("k")}, func(*memoryv1.Entry) {}},
			{"text", &memoryv1.UpdateRequest{Text: new("new")}, func(e *memoryv1.Entry) { e.Text = "new" }},
			{"kind", &memoryv1.UpdateRequest{Kind: memoryv1.Kind_KIND_INVARIANT.Enum()}, func(e *memoryv1.Entry) { e.Kind = memoryv1.Kind_KIND_INVARIANT }},
			{"tags", &memoryv1.UpdateRequest{AddTags: []string{"c"}, RemoveTags: []string{"a"}}, func(e *memoryv1.Entry) { e.Tags = []string{"b", "c"} }},
			{"other tags", &memoryv1.UpdateRequest{Clear: []string{"tags"}, AddTags: []string{"d"}}, func(e *memoryv1.Entry) { e.Tags = []string{"d"} }},
			{"no doubt", &memoryv1.UpdateRequest{Confidence: proto.Float64(1)}, func(e *memoryv1.Entry) { e.Confidence = 1 }},
			{"zero confidence", &memoryv1.UpdateRequest{Confidence: proto.Float64(0)}, func(e *memoryv1.Entry) { e.Confidence = 0 }},
			{"severity", &memoryv1.UpdateRequest{Severity: memoryv1.Severity_SEVERITY_LOW.Enum()}, func(e *memoryv1.Entry) { e.Severity = memoryv1.Severity_SEVERITY_LOW }},
			{"about", &memoryv1.UpdateRequest{About: &memoryv1.About{Session: "s1"}}, func(e *memoryv1.Entry) { e.About = &memoryv1.About{Session: "s1"} }},
			{"status", &memoryv1.UpdateRequest{Status: memoryv1.Status_STATUS_APPROVED.Enum()}, func(e *memoryv1.Entry) { e.Status = memoryv1.Status_STATUS_APPROVED }},
			{"empty source", &memoryv1.UpdateRequest{Source: new("")}, func(e *memoryv1.Entry) { e.Source = "" }},
			{"source", &memoryv1.UpdateRequest{Source: new("s2")}, func(e *memoryv1.Entry) { e.Source = "s2" }},
			{"clear", &memoryv1.UpdateRequest{Clear: []string{"tags", "severity", "about", "source", "key"}}, func(e *memoryv1.Entry) {
				e.Tags, e.Severity, e.About, e.Source, e.Key = nil, 0, &memoryv1.About{}, "", ""
			}},
		} {
			before := h.get(stored.GetId())
			want := proto.CloneOf(before)
			c.change(want)
			if !proto.Equal(before, want) {
				want.Version++
			}
			c.req.Id = stored.GetId()
			got := h.update(c.req)
			ignore := protocmp.IgnoreFields(&memoryv1.Entry{}, "updated_at")
			if diff := cmp.Diff(got, want, protocmp.Transform(), ignore); diff != "" {
				h.t.Errorf("%s (-got +want):\n%s", c.name, diff)
			}
			if diff := cmp.Diff(h.get(stored.GetId()), got, protocmp.Transform()); diff != "" {
				h.t.Errorf("%s: what is kept differs from the answer:\n%s", c.name, diff)
			}
		}
	})
}

func TestUpdateThatCannotBeIsRefused(t *testing.T) {
	each(t, func(h *home) {
		e, other := h.store("one"), h.store("other")
		many := make([]string, 20)
		for i := range many {
			many[i] = fmt.Sprint("tag", i)
		}
		h.update(&memoryv1.UpdateRequest{Id: e.GetId(), AddTags: many})
		for _, c := range []struct {
			req    *memoryv1.UpdateRequest
			fields string
		}{
			{&memoryv1.UpdateRequest{Text: new(" "), Key: new("a#b"), AddTags: []string{"\t"}}, "add_tags[0] key text"},
			{&memoryv1.UpdateRequest{Clear: []string{"tags", "key"}, Key: new("k")}, "clear[1]"},
			{&memoryv1.UpdateRequest{AddTags: []string{"x"}, RemoveTags: []string{"x", "tag1"}}, "add_tags"},
			{&memoryv1.UpdateRequest{AddTags: []string{"x"}}, "add_tags"},
			{&memoryv1.UpdateRequest{Kind: new(memoryv1.Kind), Status: new(memoryv1.Status)}, "kind status"},
		} {
			c.req.Id = e.GetId()
			_, err := h.Update(h.operator(), c.req)
			h.wantFields(c.req.String(), err, fault.InvalidArgument, c.fields)
		}
		_, err := h.Update(h.operator(), &memoryv1.UpdateRequest{Id: e.GetId(), Text: new("other ")})
		h.wantFault("the text of another", err, fault.Conflict, other.GetId())
		_, err = h.Update(h.operator(), &memoryv1.UpdateRequest{Id: e.GetId(), Text: new("new"), ExpectedVersion: proto.Int32(1)})
		h.wantFault("an old version", err, fault.Conflict, "at version 2")
		if got := h.get(e.GetId()); got.GetText() != "one" || got.GetVersion() != 2 {
			h.t.Errorf("after refusals: got %v", got)
		}
		h.update(&memoryv1.UpdateRequest{Id: e.GetId(), Text: new("new"), ExpectedVersion: proto.Int32(2)})
	})
}

func TestAgentsConfirmNothingAndLeaveOthersWordsAlone(t *testing.T) {
	const (
		candidate  = memoryv1.Status_STATUS_CANDIDATE
		observed   = memoryv1.Status_STATUS_OBSERVED
		approved   = memoryv1.Status_STATUS_APPROVED
		dismissed  = memoryv1.Status_STATUS_DISMISSED
		superseded = memoryv1.Status_STATUS_SUPERSEDED
	)
	each(t, func(h *home) {
		for i, c := range []struct {
			author string // of the entry: "me" or "other" are agents, "" is the operator
			from   memoryv1.Status
			set    memoryv1.Status // 0: not set
			text   bool            // is changed
			want   memoryv1.Status // 0: refused
		}{
			{"me", candidate, approved, false, 0},
			{"me", candidate, observed, false, 0},
			{"me", candidate, dismissed, false, dismissed},
			{"me", candidate, superseded, false, superseded},
			{"me", candidate, candidate, false, candidate},
			{"me", candidate, 0, true, candidate},
			{"me", approved, 0, true, candidate},
			{"me", approved, approved, true, approved},
			{"me", dismissed, candidate, false, 0},
			{"me", dismissed, approved, false, 0},
			{"me", dismissed, 0, true, dismissed},
			{"other", candidate, dismissed, false, 0},
			{"other", candidate, approved, false, 0},
			{"other", candidate, 0, true, 0},
			{"other", candidate, 0, false, candidate},
			{"", observed, superseded, false, 0},
			{"", observed, approved, false, 0},
			{"", observed, 0, true, 0},
			{"", observed, 0, false, observed},
		} {
			author := h.operator()
			if c.author != "" {
				author = h.agent("ses_" + c.author)
			}
			stored, err := h.Store(author, &memoryv1.StoreRequest{Text: fmt.Sprint("entry number ", i)})
			if err != nil {
				h.t.Fatal(err)
			}
			id := stored.GetEntry().GetId()
			h.update(&memoryv1.UpdateRequest{Id: id, Status: &c.from})
			req := &memoryv1.UpdateRequest{Id: id, AddTags: []string{"seen"}}
			if c.set != 0 {
				req.Status = &c.set
			}
			if c.text {
				req.Text = new(fmt.Sprint("something else ", i))
			}
			resp, err := h.Update(h.agent("ses_me"), req)
			if c.want == 0 {
				h.wantFault(fmt.Sprintf("%+v", c), err, fault.PermissionDenied, id)
				if got := h.get(id); got.GetStatus() != c.from || len(got.GetTags()) != 0 {
					h.t.Errorf("%+v: was refused and changed to %v", c, got)
				}
				continue
			}
			if err != nil || resp.GetEntry().GetStatus() != c.want {
				h.t.Errorf("%+v: got %v, %v", c, resp.GetEntry().GetStatus(), err)
			}
		}
	})
}

func TestArchivingIsIdempotentAndAllOrNothing(t *testing.T) {
	each(t, func(h *home) {
		a, b := h.store("alpha"), h.storeEntry(&memoryv1.StoreRequest{Text: "beta", Key: "b"}).GetEntry()
		_, err := h.Archive(h.operator(), &memoryv1.ArchiveRequest{Ids: []string{a.GetId(), "nope"}})
		h.wantFields("one is unknown", err, fault.NotFound, "ids[1]")
		for range 2 {
			resp, err := h.Archive(h.operator(), &memoryv1.ArchiveRequest{Ids: []string{"b", a.GetId(), b.GetId()}})
			if err != nil || texts(resp.GetEntries()) != "beta | alpha" || !resp.GetEntries()[1].GetArchived() || resp.GetEntries()[1].GetVersion() != 2 {
				h.t.Errorf("archive: got %v, %v", resp, err)
			}
		}
		if got := h.list(&memoryv1.ListRequest{}) + h.recall("alpha beta"); got != "" {
			h.t.Errorf("archived entries were found: %q", got)
		}
		if got := h.get(a.GetId()); got.GetText() != "alpha" {
			h.t.Errorf("get: got %v", got)
		}
		for range 2 {
			resp, err := h.Unarchive(h.operator(), &memoryv1.UnarchiveRequest{Ids: []string{a.GetId()}})
			if err != nil || resp.GetEntries()[0].GetArchived() || resp.GetEntries()[0].GetVersion() != 3 {
				h.t.Errorf("unarchive: got %v, %v", resp, err)
			}
		}
		if got := h.list(&memoryv1.ListRequest{}) + ", " + h.recall("alpha beta"); got != "alpha, alpha" {
			h.t.Errorf("found %q", got)
		}
	})
}

func TestListFilters(t *testing.T) {
	each(t, func(h *home) {
		agent, err := h.Store(h.agent("ses_1"), &memoryv1.StoreRequest{Text: "by agent", Confidence: new(0.2), Agent: "Bot"})
		if err != nil {
			h.t.Fatal(err)
		}
		h.storeEntry(&memoryv1.StoreRequest{Text: "rich", Kind: memoryv1.Kind_KIND_DECISION, Tags: []string{"a", "b c"}, Severity: memoryv1.Severity_SEVERITY_HIGH, Source: "s", About: &memoryv1.About{Task: "t1", Path: "p"}})
		h.storeEntry(&memoryv1.StoreRequest{Text: "plain", Tags: []string{"b"}, About: &memoryv1.About{Task: "t1"}, Severity: memoryv1.Severity_SEVERITY_LOW})
		h.storeEntry(&memoryv1.StoreRequest{Text: "away"})
		if _, err := h.Archive(h.operator(), &memoryv1.ArchiveRequest{Ids: []string{h.store("away").GetId()}}); err != nil {
			h.t.Fatal(err)
		}
		h.update(&memoryv1.UpdateRequest{Id: agent.GetEntry().GetId(), Status: memoryv1.Status_STATUS_DISMISSED.Enum()})
		h.elsewhere().store("foreign")
		for _, c := range []struct {
			req  *memoryv1.ListRequest
			want string
		}{
			{&memoryv1.ListRequest{}, "by agent | plain | rich"},
			{&memoryv1.ListRequest{Kind: []memoryv1.Kind{memoryv1.Kind_KIND_DECISION, memoryv1.Kind_KIND_FAILURE}}, "rich"},
			{&memoryv1.ListRequest{Status: []memoryv1.Status{memoryv1.Status_STATUS_DISMISSED, memoryv1.Status_STATUS_APPROVED}}, "by agent"},
			{&memoryv1.ListRequest{Tags: []string{"b c"}}, "rich"},
			{&memoryv1.ListRequest{Tags: []string{"b c", " a "}}, "rich"},
			{&memoryv1.ListRequest{Tags: []string{"b"}}, "plain"},
			{&memoryv1.ListRequest{Tags: []string{"a", "b"}}, ""},
			{&memoryv1.ListRequest{Tags: []string{"%"}}, ""},
			{&memoryv1.ListRequest{MinSeverity: memoryv1.Severity_SEVERITY_MEDIUM}, "rich"},
			{&memoryv1.ListRequest{MinSeverity: memoryv1.Severity_SEVERITY_LOW}, "plain | rich"},
			{&memoryv1.ListRequest{MinConfidence: new(0.5)}, "plain | rich"},
			{&memoryv1.ListRequest{MinConfidence: proto.Float64(0)}, "by agent | plain | rich"},
			{&memoryv1.ListRequest{Author: "me"}, "plain | rich"},
			{&memoryv1.ListRequest{Author: "session:ses_1"}, "by agent"},
			{&memoryv1.ListRequest{Source: "s"}, "rich"},
			{&memoryv1.ListRequest{Agent: " bOT"}, "by agent"},
			{&memoryv1.ListRequest{About: &memoryv1.About{Task: "t1"}}, "plain | rich"},
			{&memoryv1.ListRequest{About: &memoryv1.About{Task: "t1", Path: "p"}}, "rich"},
			{&memoryv1.ListRequest{About: &memoryv1.About{Session: "x"}}, ""},
			{&memoryv1.ListRequest{Archived: memoryv1.Archived_ARCHIVED_EXCLUDE}, "by agent | plain | rich"},
			{&memoryv1.ListRequest{Archived: memoryv1.Archived_ARCHIVED_INCLUDE}, "away | by agent | plain | rich"},
			{&memoryv1.ListRequest{Archived: memoryv1.Archived_ARCHIVED_ONLY}, "away"},
		} {
			found := strings.Split(h.list(c.req), " | ")
			slices.Sort(found) // some of them were changed in one millisecond
			if got := strings.Join(found, " | "); got != c.want {
				h.t.Errorf("%v: got %q, want %q", c.req, got, c.want)
			}
		}
	})
}

func TestListWalksEveryEntryOnceInSmallPages(t *testing.T) {
	each(t, func(h *home) {
		var want []string
		for i := range 60 {
			text := fmt.Sprintf("entry %02d %s", i, strings.Repeat("再\"\n", 600))
			h.storeEntry(&memoryv1.StoreRequest{Text: text, Source: strings.Repeat("s", 500)})
			want = append(want, fmt.Sprintf("entry %02d", i))
		}
		slices.Reverse(want)
		var got []string
		for cursor, page := "", 0; page == 0 || cursor != ""; page++ {
			resp, err := h.List(h.operator(), &memoryv1.ListRequest{Limit: proto.Int32(200), Cursor: cursor})
			if err != nil {
				h.t.Fatal(err)
			}
			if out, err := wire.Marshal(resp); err != nil || len(out) > 24<<10 {
				h.t.Errorf("page %d: %d bytes, %v", page, len(out), err)
			}
			for _, e := range resp.GetEntries() {
				got = append(got, e.GetText()[:len("entry 00")])
				if n := utf8.RuneCountInString(e.GetText()); n != 500 || !e.GetTruncated() || !utf8.ValidString(e.GetText()) {
					h.t.Errorf("text of %d characters, truncated %v", n, e.GetTruncated())
				}
			}
			cursor = resp.GetNextCursor()
			h.store(fmt.Sprint("added meanwhile ", page))
		}
		if !slices.Equal(got, want) {
			h.t.Errorf("got %q, want %q", got, want)
		}
		for _, cursor := range []string{"x", ref.Cursor("tasks.list", "1", "2"), ref.Cursor("memory.list", "x", "y"), ref.Cursor("memory.list", "1")} {
			_, err := h.List(h.operator(), &memoryv1.ListRequest{Cursor: cursor})
			h.wantFault("cursor "+cursor, err, fault.InvalidArgument, "cursor")
		}
	})
}

func TestLongTextIsCutEverywhereButInGet(t *testing.T) {
	each(t, func(h *home) {
		text := strings.Repeat("é", 501)
		stored := h.store(text)
		updated := h.update(&memoryv1.UpdateRequest{Id: stored.GetId(), AddTags: []string{"x"}})
		archived, err := h.Archive(h.operator(), &memoryv1.ArchiveRequest{Ids: []string{stored.GetId()}})
		if err != nil {
			h.t.Fatal(err)
		}
		for what, e := range map[string]*memoryv1.Entry{"store": stored, "update": updated, "archive": archived.GetEntries()[0]} {
			if e.GetText() != text[:1000] || !e.GetTruncated() {
				h.t.Errorf("%s: got %d bytes, truncated %v", what, len(e.GetText()), e.GetTruncated())
			}
		}
		if got := h.get(stored.GetId()); got.GetText() != text || got.GetTruncated() {
			h.t.Errorf("get: got %d bytes, truncated %v", len(got.GetText()), got.GetTruncated())
		}
		if e := h.store(strings.Repeat("é", 500)); e.GetTruncated() {
			h.t.Error("500 characters were called cut")
		}
	})
}

func TestEachChangeIsOneEvent(t *testing.T) {
	each(t, func(h *home) {
		e := h.store("a")
		ids := []string{e.GetId()}
		h.store("a")
		h.update(&memoryv1.UpdateRequest{Id: e.GetId()})
		h.update(&memoryv1.UpdateRequest{Id: e.GetId(), Text: new("b")})
		_, err1 := h.Archive(h.operator(), &memoryv1.ArchiveRequest{Ids: ids})
		_, err2 := h.Archive(h.operator(), &memoryv1.ArchiveRequest{Ids: ids})
		_, err3 := h.Unarchive(h.agent("ses_1"), &memoryv1.UnarchiveRequest{Ids: ids})
		_, err4 := h.Forget(h.operator(), &memoryv1.ForgetRequest{Ids: append(ids, "unknown")})
		_, err5 := h.Forget(h.operator(), &memoryv1.ForgetRequest{Ids: ids})
		if err1 != nil || err2 != nil || err3 != nil || err4 == nil || err5 != nil {
			h.t.Fatal(err1, err2, err3, err4, err5)
		}
		events, err := event.New(h.db).After(h.t.Context(), h.workspace.ID, 0, 100)
		if err != nil {
			h.t.Fatal(err)
		}
		var got []string
		for _, ev := range events {
			got = append(got, ev.Kind+" "+ev.Principal)
			if ev.Subject != e.GetId() || ev.Data != "" && !json.Valid([]byte(ev.Data)) {
				h.t.Errorf("got %+v", ev)
			}
		}
		want := []string{"memory.stored operator", "memory.updated operator", "memory.archived operator", "memory.unarchived session:ses_1", "memory.forgotten operator"}
		if !slices.Equal(got, want) {
			h.t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestPurgeDeletesOneWorkspace(t *testing.T) {
	each(t, func(h *home) {
		other := h.elsewhere()
		h.store("shared words here")
		h.store("more shared words")
		other.store("shared words there")
		var n int
		err := h.db.Do(h.t.Context(), func(tx *storage.Tx) (err error) {
			n, err = h.Purge(tx, h.workspace.ID)
			return err
		})
		if err != nil || n != 2 {
			h.t.Errorf("got %d, %v, want 2", n, err)
		}
		if got := h.recall("shared") + h.list(&memoryv1.ListRequest{Archived: memoryv1.Archived_ARCHIVED_INCLUDE}); got != "" {
			h.t.Errorf("left: %q", got)
		}
		if got := other.recall("shared"); got != "shared words there" {
			h.t.Errorf("in the other workspace: got %q", got)
		}
	})
}
