package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the wanted outputs")

// TestCases compares what is written for testdata/<case>/case.proto, or why nothing is,
// with the case's want.txt.
func TestCases(t *testing.T) {
	t.Parallel()
	cases, err := filepath.Glob("testdata/*/case.proto")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range cases {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			got := outcome(t, dir)
			golden := filepath.Join(dir, "want.txt")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(got), string(want)); diff != "" {
				t.Errorf("got (-) and want (+) differ; run with -update if it should:\n%s", diff)
			}
		})
	}
}

// outcome returns the error or the files that a case leads to.
func outcome(t *testing.T, dir string) []byte {
	t.Helper()
	protos, err := compile(t.Context(), dir, "case.proto")
	if err != nil {
		return append([]byte(err.Error()), '\n')
	}
	files, err := generate(protos)
	if err != nil {
		return append(bytes.TrimSpace([]byte(err.Error())), '\n')
	}
	archive := &txtar.Archive{}
	for _, f := range files {
		archive.Files = append(archive.Files, txtar.File{Name: f.name, Data: f.content})
	}
	return txtar.Format(archive)
}
