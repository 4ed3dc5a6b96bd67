package ref_test

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"testing"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

func TestCursorComesBackAsItWas(t *testing.T) {
	for _, fields := range [][]string{
		nil,
		{""},
		{"1700000000000", taskID},
		{"\x00\xff", "a,b", "", strings.Repeat("x", 300)},
	} {
		s := ref.Cursor("tasks.list", fields...)
		if got := url.QueryEscape(s); got != s {
			t.Errorf("cursor %q is not safe in a URL", s)
		}
		got, err := ref.ParseCursor("tasks.list", s)
		if err != nil || !slices.Equal(got, fields) {
			t.Errorf("ParseCursor of Cursor(%q) = %q, %v", fields, got, err)
		}
	}
}

func TestEmptyCursorIsTheBeginning(t *testing.T) {
	if got, err := ref.ParseCursor("tasks.list", ""); got != nil || err != nil {
		t.Errorf(`ParseCursor("") = %q, %v; want no fields and no error`, got, err)
	}
}

func TestCursorOfAnotherListIsRefused(t *testing.T) {
	_, err := ref.ParseCursor("sessions.list", ref.Cursor("tasks.list", "5"))
	if got := fault.Of(err); err == nil || got != fault.InvalidArgument {
		t.Fatalf("error = %v, want an InvalidArgument", err)
	}
	for _, want := range []string{`"tasks.list"`, `"sessions.list"`, "leave cursor out"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error = %q, want it to contain %q", err, want)
		}
	}
}

func TestDamagedCursorIsRefused(t *testing.T) {
	good := ref.Cursor("tasks.list", "5", taskID)
	raw, err := base64.RawURLEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	raw[0]++
	tests := map[string]string{
		"cut short":     good[:len(good)-2],
		"longer":        good + "AA",
		"altered":       strings.ToLower(good),
		"not base64":    "page 2",
		"a number":      "20",
		"null":          "null",
		"other version": base64.RawURLEncoding.EncodeToString(raw),
	}
	for name, s := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ref.ParseCursor("tasks.list", s)
			if err == nil || fault.Of(err) != fault.InvalidArgument {
				t.Errorf("ParseCursor(%q) = %q, %v; want an InvalidArgument", s, got, err)
			}
		})
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add("tasks.list", ref.Cursor("tasks.list", "1700000000000", taskID))
	f.Add("tasks.list", ref.Cursor("", ""))
	f.Add("", "AQ")
	f.Fuzz(func(t *testing.T, kind, s string) {
		fields, err := ref.ParseCursor(kind, s)
		if err != nil {
			if got := fault.Of(err); got != fault.InvalidArgument {
				t.Fatalf("kind %v, want %v", got, fault.InvalidArgument)
			}
			return
		}
		again, err := ref.ParseCursor(kind, ref.Cursor(kind, fields...))
		if err != nil || !slices.Equal(again, fields) {
			t.Fatalf("ParseCursor gave %q, and after another round %q, %v", fields, again, err)
		}
	})
}
