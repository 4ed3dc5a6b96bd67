package redact_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"compozy.dev/compozy/internal/redact"
)

const canary = "s3cr3t/canary+value=9"

func TestASecretIsTakenOutInEveryForm(t *testing.T) {
	set := redact.New(canary, "short")
	for name, form := range map[string]string{
		"plain":         canary,
		"hex":           hex.EncodeToString([]byte(canary)),
		"upper hex":     strings.ToUpper(hex.EncodeToString([]byte(canary))),
		"query":         url.QueryEscape(canary),
		"path":          url.PathEscape(canary),
		"base64":        base64.StdEncoding.EncodeToString([]byte(canary)),
		"base64 inside": base64.StdEncoding.EncodeToString([]byte("a:" + canary + ":b")),
		"base64url":     base64.RawURLEncoding.EncodeToString([]byte("user:" + canary)),
	} {
		t.Run(name, func(t *testing.T) {
			text := "before " + form + " after"
			if !set.In([]byte(text)) {
				t.Fatalf("In(%q) = false", text)
			}
			got := set.String(text)
			if !strings.Contains(got, redact.Mark) || strings.Contains(got, form) {
				t.Errorf("String(%q) = %q", text, got)
			}
			if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
				t.Errorf("text around the secret is gone: %q", got)
			}
		})
	}
}

func TestASecretIsTakenOutOfJSON(t *testing.T) {
	const secret = "pass\"w\\o<r>d/ü😀\nline"
	set := redact.New(secret)
	for name, form := range map[string]string{
		"least":   `pass\"w\\o<r>d/ü😀\nline`,
		"HTML":    `pass\"w\\o\u003cr\u003ed/ü😀\nline`,
		"slashes": `pass\"w\\o<r>d\/ü😀\nline`,
		"twice":   `pass\\\"w\\\\o\u003cr\u003ed/ü😀\\nline`,
		"ASCII":   `pass\"w\\o<r>d/\u00fc\ud83d\ude00\nline`,
	} {
		if got := set.String(`{"k":"` + form + `"}`); got != `{"k":"`+redact.Mark+`"}` {
			t.Errorf("%s: %s", name, got)
		}
		if !set.In([]byte(form)) {
			t.Errorf("%s: In = false", name)
		}
	}
}

func TestHarmlessTextStays(t *testing.T) {
	for _, set := range []*redact.Set{{}, redact.New(), redact.New(canary, "short", "")} {
		for _, text := range []string{"", "short", "nothing to see", "s3cr3t/canary"} {
			if got := set.String(text); got != text {
				t.Errorf("String(%q) = %q", text, got)
			}
			if set.In([]byte(text)) {
				t.Errorf("In(%q) = true", text)
			}
		}
	}
}

func TestNoLogAttributeHoldsASecret(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(redact.New(canary).Handler(slog.NewJSONHandler(&out, nil)))
	log = log.With("dsn", "postgres://u:"+canary+"@h/db").WithGroup("call")
	log.Error("refused "+canary,
		"text", canary, "err", fmt.Errorf("dial: %w", errors.New(canary)),
		"any", struct{ Token string }{canary}, "list", []string{canary}, "bytes", []byte(canary),
		slog.Group("inner", "token", canary), "n", 7)
	if strings.Contains(out.String(), canary) {
		t.Errorf("the log holds the secret: %s", out.String())
	}
	if !strings.Contains(out.String(), `"n":7`) || !strings.Contains(out.String(), "dial: "+redact.Mark) {
		t.Errorf("the log lost what is harmless: %s", out.String())
	}
}
