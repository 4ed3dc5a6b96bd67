package memory_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/wire"
)

func TestQueryIsNeverSyntax(t *testing.T) {
	each(t, func(h *home) {
		for text, queries := range map[string][]string{
			"ticket POL-358 is about the gate": {"POL-358", "pol 358", "why POL-358?", "\"POL-358"},
			"we don't retry payments":          {"don't retry", "DON’T RETRY"},
			"chapter 38.101 of the norm":       {"38.101", "(38.101", "-38.101"},
			"the parser is written in C++":     {"C++", "c++ parser", "^parser", "parser*"},
			"set a:b in the file":              {"a:b file", "file:set"},
			"foo is the placeholder":           {"foo*", "foo AND", "NEAR(foo, 3)", "NOT foo", "{foo}", "foo | & ! <->"},
			"drop table is dangerous":          {"'; DROP TABLE memory;--", "dangerous\\", "dangerous\x00table", "%dangerous_"},
		} {
			h.store(text)
			for _, query := range queries {
				if got := h.recall(query); !strings.Contains(got, text) {
					h.t.Errorf("%q: got %q, want %q in it", query, got, text)
				}
			}
		}
		for _, query := range []string{"AND", "OR", "NOT", "NEAR(", "the", strings.Repeat("word ", 2000), strings.Repeat("x", 10_000), strings.Repeat("東京", 3000), "\ufffd a"} {
			h.recall(query)
		}
		for _, query := range []string{"^", "%_", "\\", "\"", "(", "*", "-", " \t\n", "\x00", "…", "🚀"} {
			_, err := h.Recall(h.operator(), &memoryv1.RecallRequest{Query: query})
			h.wantFields(fmt.Sprintf("%q", query), err, fault.InvalidArgument, "query")
		}
	})
}

func TestWordsOfOneAndTwoCharactersAreFound(t *testing.T) {
	each(t, func(h *home) {
		for _, text := range []string{"東京のサーバーは夜に止まる", "猫が鍵を持っている", "数据库每天备份", "서버는 밤에 멈춘다", "เซิร์ฟเวอร์หยุดตอนกลางคืน"} {
			h.store(text)
		}
		for query, want := range map[string]string{
			"猫": "猫が鍵を持っている", "鍵": "猫が鍵を持っている", "東京": "東京のサーバーは夜に止まる", "夜": "東京のサーバーは夜に止まる",
			"备份": "数据库每天备份", "서버": "서버는 밤에 멈춘다", "หยุด": "เซิร์ฟเวอร์หยุดตอนกลางคืน",
		} {
			if got := h.recall(query); got != want {
				h.t.Errorf("%s: got %q, want %q", query, got, want)
			}
		}
	})
}

func TestChangesAreFoundAtOnce(t *testing.T) {
	each(t, func(h *home) {
		want := func(what, query, want string) {
			h.t.Helper()
			if got := h.recall(query); got != want {
				h.t.Errorf("%s: %q found %q, want %q", what, query, got, want)
			}
		}
		e := h.store("the lantern hangs in the hall")
		want("stored", "lantern", e.GetText())
		h.update(&memoryv1.UpdateRequest{Id: e.GetId(), Text: new("the chandelier hangs in the hall")})
		want("edited, old word", "lantern", "")
		want("edited, new word", "chandelier", "the chandelier hangs in the hall")
		for _, status := range []memoryv1.Status{memoryv1.Status_STATUS_DISMISSED, memoryv1.Status_STATUS_SUPERSEDED} {
			h.update(&memoryv1.UpdateRequest{Id: e.GetId(), Status: &status})
			want(status.String(), "chandelier", "")
		}
		h.update(&memoryv1.UpdateRequest{Id: e.GetId(), Text: new("the sconce hangs in the hall")})
		want("edited while superseded", "sconce", "")
		h.update(&memoryv1.UpdateRequest{Id: e.GetId(), Status: memoryv1.Status_STATUS_APPROVED.Enum()})
		want("approved", "chandelier", "")
		want("approved", "sconce", "the sconce hangs in the hall")
		h.update(&memoryv1.UpdateRequest{Id: e.GetId(), Text: new("!!!")})
		want("no words left", "sconce hangs", "")
		h.elsewhere().store("a sconce elsewhere")
		want("another workspace", "sconce", "")
	})
}

func TestRecallFilters(t *testing.T) {
	each(t, func(h *home) {
		h.storeEntry(&memoryv1.StoreRequest{Text: "gate one", Kind: memoryv1.Kind_KIND_DECISION, Tags: []string{"a", "b"}})
		h.storeEntry(&memoryv1.StoreRequest{Text: "gate two", Tags: []string{"a"}, Confidence: new(0.1)})
		h.storeEntry(&memoryv1.StoreRequest{Text: "gate three", Agent: "Bot"})
		for _, c := range []struct {
			req  *memoryv1.RecallRequest
			want string
		}{
			{&memoryv1.RecallRequest{}, "gate one | gate two"},
			{&memoryv1.RecallRequest{Agent: "bot"}, "gate one | gate three | gate two"},
			{&memoryv1.RecallRequest{Agent: "other"}, "gate one | gate two"},
			{&memoryv1.RecallRequest{Kind: []memoryv1.Kind{memoryv1.Kind_KIND_DECISION}}, "gate one"},
			{&memoryv1.RecallRequest{Tags: []string{"a"}}, "gate one | gate two"},
			{&memoryv1.RecallRequest{Tags: []string{"a", "b"}}, "gate one"},
			{&memoryv1.RecallRequest{MinConfidence: new(0.5)}, "gate one"},
		} {
			c.req.Query = "gate"
			entries := h.recallEntries(c.req)
			slices.SortFunc(entries, func(a, b *memoryv1.Entry) int { return strings.Compare(a.GetText(), b.GetText()) })
			if got := texts(entries); got != c.want {
				h.t.Errorf("%v: got %q, want %q", c.req, got, c.want)
			}
		}
	})
}

func TestSureAndApprovedEntriesComeFirst(t *testing.T) {
	each(t, func(h *home) {
		for _, e := range []struct {
			text       string
			confidence float64
			status     memoryv1.Status
		}{
			{"rollout guess three", 0.0, memoryv1.Status_STATUS_CANDIDATE},
			{"rollout guess two", 0.8, memoryv1.Status_STATUS_CANDIDATE},
			{"rollout guess one", 0.8, memoryv1.Status_STATUS_APPROVED},
			{"rollout plan of the quarter", 0.0, memoryv1.Status_STATUS_CANDIDATE},
		} {
			stored := h.storeEntry(&memoryv1.StoreRequest{Text: e.text, Confidence: &e.confidence}).GetEntry()
			h.update(&memoryv1.UpdateRequest{Id: stored.GetId(), Status: &e.status})
		}
		if got, want := h.recall("rollout guess"), "rollout guess one | rollout guess two | rollout guess three | rollout plan of the quarter"; got != want {
			h.t.Errorf("got %q, want %q", got, want)
		}
		if got, want := h.recall("quarter"), "rollout plan of the quarter"; got != want {
			h.t.Errorf("an entry that nobody is sure of: got %q, want %q", got, want)
		}
	})
}

func TestRecallFitsItsBudgetAndNamesWhatIsLeftOut(t *testing.T) {
	each(t, func(h *home) {
		long := "gate  " + strings.Repeat("long ", 100) // 515 bytes, 129 tokens
		h.store(long)
		for i := range 40 {
			h.store(fmt.Sprintf("gate %02d %s", i, strings.Repeat("ab", 16))) // 40 bytes, 10 tokens
		}
		recall := func(req *memoryv1.RecallRequest) *memoryv1.RecallResponse {
			h.t.Helper()
			req.Query = "gate"
			resp, err := h.Recall(h.operator(), req)
			if err != nil {
				h.t.Fatal(err)
			}
			return resp
		}
		for _, c := range []struct {
			req           *memoryv1.RecallRequest
			hits, leftOut int
			tokens        int32
		}{
			{&memoryv1.RecallRequest{Budget: proto.Int32(50)}, 5, 20, 50},
			{&memoryv1.RecallRequest{Budget: proto.Int32(59)}, 5, 20, 50},
			{&memoryv1.RecallRequest{Budget: proto.Int32(128), Limit: proto.Int32(50)}, 12, 20, 120},
			{&memoryv1.RecallRequest{Limit: proto.Int32(1)}, 1, 20, 10},
			{&memoryv1.RecallRequest{Limit: proto.Int32(30)}, 30, 11, 300},
			{&memoryv1.RecallRequest{}, 10, 20, 100},
		} {
			resp := recall(c.req)
			if len(resp.GetHits()) != c.hits || len(resp.GetLeftOut()) != c.leftOut || resp.GetTokens() != c.tokens {
				h.t.Errorf("%v: got %d hits, %d left out, %d tokens, want %d, %d, %d",
					c.req, len(resp.GetHits()), len(resp.GetLeftOut()), resp.GetTokens(), c.hits, c.leftOut, c.tokens)
			}
			for i := 1; i < len(resp.GetHits()); i++ {
				if resp.GetHits()[i-1].GetScore() < resp.GetHits()[i].GetScore() {
					h.t.Errorf("%v: hit %d scores more than the one before", c.req, i)
				}
			}
		}
		_, err := h.Forget(h.operator(), &memoryv1.ForgetRequest{Ids: []string{h.storeEntry(&memoryv1.StoreRequest{Text: long}).GetEntry().GetId()}})
		if err != nil {
			h.t.Fatal(err)
		}
		huge := h.store("zebra " + strings.Repeat("再", 19_000))
		resp, err := h.Recall(h.operator(), &memoryv1.RecallRequest{Query: "zebra", Budget: proto.Int32(20_000)})
		if err != nil || len(resp.GetHits()) != 0 || len(resp.GetLeftOut()) != 1 || resp.GetLeftOut()[0].GetId() != huge.GetId() || resp.GetTokens() != 0 {
			h.t.Errorf("one that is too large: got %v, %v", resp, err)
		}
	})
}

func TestRecallStaysBelowAPage(t *testing.T) {
	each(t, func(h *home) {
		for i := range 60 {
			h.storeEntry(&memoryv1.StoreRequest{
				Text: fmt.Sprintf("gate %d %s", i, strings.Repeat("再\"", 100+20*i)), Key: fmt.Sprintf("%sと%d", strings.Repeat("鍵", 90), i), Source: strings.Repeat("\n", 300),
			})
		}
		resp, err := h.Recall(h.operator(), &memoryv1.RecallRequest{Query: "gate", Budget: proto.Int32(20_000), Limit: proto.Int32(50)})
		if err != nil {
			h.t.Fatal(err)
		}
		out, err := wire.Marshal(resp)
		if err != nil || len(out) > 24<<10 || len(resp.GetHits()) < 5 || len(resp.GetLeftOut()) < 5 {
			h.t.Errorf("got %d bytes, %v, %d hits and %d left out", len(out), err, len(resp.GetHits()), len(resp.GetLeftOut()))
		}
	})
}

func TestEnginesRankAlike(t *testing.T) {
	words := strings.Fields("gate lantern server backup deploy Friday retry payment C++ 東京 猫 Übung café timeout index queue")
	queries := []string{"gate", "server backup", "why did the payment retry?", "deploy friday queue", "東京", "猫 cafe", "uebung übung timeout index", "c++"}
	orders := map[storagetest.Engine][]string{}
	for _, engine := range []storagetest.Engine{storagetest.SQLite, storagetest.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			cfg := storagetest.Config(t, engine)
			clock := time.UnixMilli(1_700_000_000_000)
			cfg.Now = func() time.Time {
				clock = clock.Add(time.Hour)
				return clock
			}
			cfg.Logger = slog.New(slog.DiscardHandler)
			db, err := storage.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			h := newHome(t, db)
			for i := range 150 {
				var text []string
				for j := range 3 + i%11 {
					text = append(text, words[(i*i+j*(i+3))%len(words)])
				}
				stored := h.storeEntry(&memoryv1.StoreRequest{Text: fmt.Sprint(strings.Join(text, " "), " entry", i), Confidence: new(float64(i%5) / 4)}).GetEntry()
				if i%3 == 0 {
					h.update(&memoryv1.UpdateRequest{Id: stored.GetId(), Status: memoryv1.Status_STATUS_APPROVED.Enum()})
				}
			}
			for _, query := range queries {
				orders[engine] = append(orders[engine], texts(h.recallEntries(&memoryv1.RecallRequest{Query: query, Limit: proto.Int32(50)})))
			}
		})
	}
	lite, postgres := orders[storagetest.SQLite], orders[storagetest.Postgres]
	if postgres == nil {
		t.Skip("there is one engine")
	}
	for i, query := range queries {
		if lite[i] == "" || lite[i] != postgres[i] {
			t.Errorf("%q: SQLite found\n%s\nPostgreSQL found\n%s", query, lite[i], postgres[i])
		}
	}
}

func TestIndexOfAnotherTokenizerIsMadeAnew(t *testing.T) {
	each(t, func(h *home) {
		h.store("the lantern hangs in the hall")
		h.store("a lantern without a hall, 東京")
		gone := h.store("an archived lantern")
		if _, err := h.Archive(h.operator(), &memoryv1.ArchiveRequest{Ids: []string{gone.GetId()}}); err != nil {
			h.t.Fatal(err)
		}
		h.elsewhere().store("lantern elsewhere")
		for i := range 120 {
			h.store(fmt.Sprint("filler ", i))
		}
		queries := []string{"lantern", "hall lantern", "東", "filler 7"}
		answers := func() (list []string) {
			for _, query := range queries {
				list = append(list, h.recall(query))
			}
			return list
		}
		reindex := func() {
			h.t.Helper()
			if err := h.Reindex(h.t.Context()); err != nil {
				h.t.Fatal(err)
			}
		}
		want := answers()
		reindex()
		if got := answers(); !slices.Equal(got, want) {
			h.t.Errorf("after the first time: got %q, want %q", got, want)
		}
		spoil := func(statements ...string) {
			h.t.Helper()
			err := h.db.Do(h.t.Context(), func(tx *storage.Tx) error {
				for _, s := range statements {
					if _, err := tx.Exec(s); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				h.t.Fatal(err)
			}
		}
		spoil(`UPDATE memory SET terms = 'old', length = 1`)
		reindex()
		if got := h.recall("lantern"); got != "" {
			h.t.Errorf("an index of this version was made anew: found %q", got)
		}
		spoil(`UPDATE setting SET value = '0' WHERE name = 'memory_index_version'`)
		reindex()
		if got := answers(); !slices.Equal(got, want) {
			h.t.Errorf("made anew: got %q, want %q", got, want)
		}
		if got := h.recall("old"); got != "" {
			h.t.Errorf("what was there before is still found: %q", got)
		}
	})
}

// TestTokensAreThoseOfThisVersion fails when search.Tokens changes. Raise tokenizerVersion
// then, so that indexes are made anew, and write down the new sum.
func TestTokensAreThoseOfThisVersion(t *testing.T) {
	text := "The deploys weren't running on Friday: POL-358, userID, HTTPServer, docs/setup.md, C++, C#, v1.2.3, " +
		"Übung naïve ΣΊΣΥΦΟΣ Ёлка שָׁלוֹם 東京のサーバー 데이터 ไทย ﬁn ⅷ ｆｕｌｌ e\u0301 zxabc 🚀"
	sum := sha256.Sum256([]byte(strings.Join(search.Tokens(text), " ")))
	if got, want := hex.EncodeToString(sum[:8]), "9fd01b259c13ac3b"; got != want {
		t.Errorf("the tokens have the sum %s, want %s:\n%s", got, want, strings.Join(search.Tokens(text), " "))
	}
}

func TestLongestTextOfAnyScriptIsStoredAndFound(t *testing.T) {
	const longest = 20_000 // characters
	var han, words strings.Builder
	for i := range rune(longest) {
		han.WriteRune(0x20000 + i) // four bytes each, and no two alike
		if i%4 == 0 {
			fmt.Fprintf(&words, "%x ", i)
		}
	}
	each(t, func(h *home) {
		for name, text := range map[string]string{
			"no spaces": han.String(),
			"words":     words.String(),
			"one word":  strings.Repeat("a", longest),
			"ligatures": strings.Repeat("\ufdfa", longest), // eighteen characters each, once taken apart
			"marks":     "a" + strings.Repeat("\u0301", longest-1),
		} {
			e := h.store(text)
			if got := h.get(e.GetId()).GetText(); got != text {
				h.t.Errorf("%s: %d bytes came back as %d", name, len(text), len(got))
			}
			resp, err := h.Recall(h.operator(), &memoryv1.RecallRequest{Query: e.GetText()[:100]})
			if err != nil || len(resp.GetHits())+len(resp.GetLeftOut()) == 0 {
				h.t.Errorf("%s: not found, %v", name, err)
			}
			_, err = h.Forget(h.operator(), &memoryv1.ForgetRequest{Ids: []string{e.GetId()}})
			if err != nil {
				h.t.Errorf("%s: %v", name, err)
			}
		}
	})
}
