package main

import (
	"encoding/json"
	"strings"
)

// contents is the content of a message or of a tool's result. All APIs let it be a plain
// string or a list of parts, some a single part.
type contents []part

type part struct {
	Type    string
	Text    string
	Content contents // of a tool's result
}

// UnmarshalJSON takes each of the forms.
func (c *contents) UnmarshalJSON(data []byte) error {
	*c = nil
	var text string
	if json.Unmarshal(data, &text) == nil {
		if text != "" {
			*c = contents{{Type: "text", Text: text}}
		}
		return nil
	}
	var parts []part
	if err := json.Unmarshal(data, &parts); err == nil {
		*c = parts
		return nil
	}
	var one part
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	*c = contents{one}
	return nil
}

// text returns the words of the parts, a part a line. Results inside it are left out.
func (c contents) text() string {
	var lines []string
	for _, p := range c {
		if p.Text != "" {
			lines = append(lines, p.Text)
		}
	}
	return strings.Join(lines, "\n")
}
