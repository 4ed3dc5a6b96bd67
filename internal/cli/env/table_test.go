package env

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTableIsCutToTheTerminal(t *testing.T) {
	rows := table{
		heading: []string{"HANDLE", "TITLE", "STATUS"},
		rows: [][]string{
			{"t1", "a title that is much too long for this terminal", "ready"},
			{"t2", "数据库迁移只能向前进行并且需要备份和审核", "done"},
			{"t3", "cafe\u0301", ""},
		},
	}
	tests := []struct {
		name     string
		terminal int
		want     []string
	}{
		{"the widest column is cut", 36, []string{
			"HANDLE  TITLE                 STATUS",
			"t1      a title that is muc…  ready",
			"t2      数据库迁移只能向前…   done",
			"t3      cafe\u0301",
		}},
		{"a terminal too narrow for anything", 1, []string{
			"HAN…  TIT…  STA…",
			"t1    a t…  rea…",
			"t2    数…   done",
			"t3    cafe\u0301",
		}},
		{"no terminal", 0, []string{
			"HANDLE  TITLE                                            STATUS",
			"t1      a title that is much too long for this terminal  ready",
			"t2      数据库迁移只能向前进行并且需要备份和审核         done",
			"t3      cafe\u0301",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Split(strings.TrimSuffix(rows.format(tt.terminal, false), "\n"), "\n")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyTheHeadingIsBright(t *testing.T) {
	got := table{[]string{"A"}, [][]string{{"a"}}}.format(80, true)
	if want := "\x1b[1mA\x1b[0m\na\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
