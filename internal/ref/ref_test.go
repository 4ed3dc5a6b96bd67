package ref_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

const taskID = "tsk_06c8k8f2qrs0h5n1d3u7m4v9eg"

func TestParseReadsEveryForm(t *testing.T) {
	tests := []struct {
		in   string
		want ref.Ref
	}{
		{taskID, ref.Ref{ID: taskID}},
		{taskID + ":5", ref.Ref{ID: taskID, Part: ref.Part{From: 5, To: 5}}},
		{taskID + "#setup", ref.Ref{ID: taskID, Part: ref.Part{Section: "setup"}}},
		{"t7", ref.Ref{Handle: "t7", Name: "t7"}},
		{"  T7\n", ref.Ref{Handle: "t7", Name: "T7"}},
		{"s12:5-7", ref.Ref{Handle: "s12", Name: "s12", Part: ref.Part{From: 5, To: 7}}},
		{"s12:5-5", ref.Ref{Handle: "s12", Name: "s12", Part: ref.Part{From: 5, To: 5}}},
		{"readme:5-7", ref.Ref{Name: "readme", Part: ref.Part{From: 5, To: 7}}},
		{"readme#setup", ref.Ref{Name: "readme", Part: ref.Part{Section: "setup"}}},
		{"docs/C++ guide#Before you # start:", ref.Ref{Name: "docs/C++ guide", Part: ref.Part{Section: "Before you # start:"}}},
		{"开发#安装", ref.Ref{Name: "开发", Part: ref.Part{Section: "安装"}}},

		{"t0", ref.Ref{Name: "t0"}},
		{"t07", ref.Ref{Name: "t07"}},
		{"tt7", ref.Ref{Name: "tt7"}},
		{"7", ref.Ref{Name: "7"}},
		{"t1234567890123456789", ref.Ref{Name: "t1234567890123456789"}},
		{strings.ToUpper(taskID), ref.Ref{Name: strings.ToUpper(taskID)}},
		{taskID + "0", ref.Ref{Name: taskID + "0"}},
		{"my project", ref.Ref{Name: "my project"}},
		{"my%20project", ref.Ref{Name: "my%20project"}},
		{"cafe\u0301", ref.Ref{Name: "cafe\u0301"}},
		{"Fix #12", ref.Ref{Name: "Fix #12"}},
		{"C#", ref.Ref{Name: "C#"}},
		{"#setup", ref.Ref{Name: "#setup"}},
		{"fix: the build", ref.Ref{Name: "fix: the build"}},
		{"step :5", ref.Ref{Name: "step :5"}},
		{":5", ref.Ref{Name: ":5"}},
		{"readme:5-", ref.Ref{Name: "readme:5-"}},
		{"*", ref.Ref{Name: "*"}},
		{"none", ref.Ref{Name: "none"}},
		{strings.Repeat("é", 200), ref.Ref{Name: strings.Repeat("é", 200)}},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ref.Parse(tt.in)
			if err != nil {
				t.Fatalf("Parse(%q): %v", tt.in, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Parse(%q) (-want +got):\n%s", tt.in, diff)
			}
		})
	}
}

func TestParseSaysWhatWouldBeRight(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", "is empty: give an id, a handle such as t7"},
		{" \t\n", "is empty"},
		{"null", "stands for no value"},
		{"undefined", "leave the argument out"},
		{" None ", "stands for no value"},
		{"t7\x00", "control character"},
		{"one\ntwo", "on one line"},
		{"\xff\xfe", "not valid UTF-8"},
		{strings.Repeat("é", 201), "has 201 characters, and at most 200"},
		{"s12:", "write s12:5 for one turn or line, or s12:5-7 for several"},
		{"s12:last", "no number after the colon"},
		{"s12:5-", "no number after the colon"},
		{taskID + ":-1", "no number after the colon"},
		{"s12:0", "counted from 1"},
		{"s12:7-5", "the first comes before the last, as in s12:5-7"},
		{"readme:7-5", "as in readme:5-7"},
		{"s12:99999999999999999999", "is not a range"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ref.Parse(tt.in)
			if err == nil {
				t.Fatalf("Parse(%q) = %+v, want an error", tt.in, got)
			}
			if kind := fault.Of(err); kind != fault.InvalidArgument {
				t.Errorf("kind = %v, want %v", kind, fault.InvalidArgument)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %q, want it to contain %q", err, tt.want)
			}
		})
	}
}

func TestWholeRefusesParts(t *testing.T) {
	for _, whole := range []string{"t7", taskID, "my project"} {
		r, err := ref.Parse(whole)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Whole(); err != nil || got != r {
			t.Errorf("Whole of %q = %+v, %v; want it unchanged", whole, got, err)
		}
		for _, part := range []string{":5", ":5-7", "#setup"} {
			r, err := ref.Parse(whole + part)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Whole()
			if got := fault.Of(err); err == nil || got != fault.InvalidArgument {
				t.Errorf("Whole of %q: %v, want an InvalidArgument", whole+part, err)
				continue
			}
			if want := fmt.Sprintf("give %q", whole); !strings.Contains(err.Error(), want) {
				t.Errorf("Whole of %q: %q, want it to contain %q", whole+part, err, want)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		taskID, "t7", "s12:5-7", "readme#setup", "readme:5-7", "C#", "a#b#c:1", "x:0", ":", "#", "a:1:2", "null", "\x00", "\xff#\xff", "é:１",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ref.Parse(s)
		if err != nil {
			if got := fault.Of(err); got != fault.InvalidArgument {
				t.Fatalf("Parse(%q): kind %v, want %v", s, got, fault.InvalidArgument)
			}
			if !utf8.ValidString(err.Error()) {
				t.Fatalf("Parse(%q): the error %q is not valid UTF-8", s, err)
			}
			return
		}
		if (r.ID == "") == (r.Name == "") {
			t.Fatalf("Parse(%q) = %+v, want either an id or a name", s, r)
		}
		if p := r.Part; p.Section != "" && p.From != 0 || p.From > p.To || p.From < 0 {
			t.Fatalf("Parse(%q) = %+v, want a section, a range or neither", s, r)
		}
		again, err := ref.Parse(r.String())
		if err != nil || again != r {
			t.Fatalf("Parse(%q) = %+v, %v; want what Parse(%q) gave: %+v", r, again, err, s, r)
		}
	})
}
