package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
)

// What can be chosen.
const (
	whatMode  = "mode"
	whatModel = "model"
)

// choices is what an agent lets us choose.
type choices struct{ mode, model choice }

// choice is one thing to choose.
type choice struct {
	what    string
	option  string // the configuration option that it is; empty: none
	method  bool   // there is a method of its own for it
	current string
	values  []value
}

// value is one of the values of a choice.
type value struct{ id, name string }

// readChoices reads modes and models wherever an agent has them. What it says in a way that
// cannot be read is left out, and nothing else with it.
func readChoices(e entered) choices {
	c := choices{mode: choice{what: whatMode}, model: choice{what: whatModel}}
	var modes struct {
		Current   string `json:"currentModeId"`
		Available []struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"availableModes"`
	}
	var models struct {
		Current   string `json:"currentModelId"`
		Available []struct {
			ID   string `json:"modelId"`
			Name string `json:"name"`
		} `json:"availableModels"`
	}
	if len(e.Modes) > 0 && json.Unmarshal(e.Modes, &modes) == nil {
		c.mode.method, c.mode.current = len(modes.Available) > 0, modes.Current
		for _, m := range modes.Available {
			c.mode.values = append(c.mode.values, value{m.ID, m.Name})
		}
	}
	if len(e.Models) > 0 && json.Unmarshal(e.Models, &models) == nil {
		c.model.method, c.model.current = len(models.Available) > 0, models.Current
		for _, m := range models.Available {
			c.model.values = append(c.model.values, value{m.ID, m.Name})
		}
	}
	c.update(e)
	return c
}

// option is a configuration option with a list of values, on the wire.
type option struct {
	ID       string      `json:"id"`
	Category string      `json:"category"`
	Type     string      `json:"type"`
	Current  string      `json:"currentValue"`
	Options  []selection `json:"options"`
}

// selection is a value, or a group of values.
type selection struct {
	Value   string      `json:"value"`
	Name    string      `json:"name"`
	Options []selection `json:"options"`
}

// update reads the configuration options, which go before everything else.
func (c *choices) update(e entered) {
	for _, raw := range e.Options {
		var o option
		if json.Unmarshal(raw, &o) != nil || o.ID == "" {
			continue // of a type that has no list
		}
		into := map[string]*choice{whatMode: &c.mode, whatModel: &c.model}[o.category()]
		if into == nil || into.option != "" && into.option != o.ID {
			continue
		}
		into.option, into.current, into.values = o.ID, o.Current, flatten(o.Options)
	}
}

// category returns what an option is for. Only some agents say.
func (o option) category() string {
	if o.Category != "" {
		return o.Category
	}
	return o.ID
}

func flatten(list []selection) []value {
	var values []value
	for _, s := range list {
		if s.Value != "" {
			values = append(values, value{s.Value, s.Name})
		}
		values = append(values, flatten(s.Options)...)
	}
	return values
}

// find returns the value with an id or else with a name.
func (c choice) find(word string) (value, bool) {
	for _, same := range []func(value) bool{
		func(v value) bool { return v.id == word },
		func(v value) bool { return strings.EqualFold(v.id, word) },
		func(v value) bool { return strings.EqualFold(v.name, word) },
	} {
		if i := slices.IndexFunc(c.values, same); i >= 0 {
			return c.values[i], true
		}
	}
	return value{}, false
}

func (c choice) ids() []string {
	var ids []string
	for _, v := range c.values {
		ids = append(ids, v.id)
	}
	return ids
}

// dialects are the modes of the agents that we know, by ids and names without case and
// punctuation: for each of the permissions what it is called, and one that tells the
// dialect. Modes that plan only, or in which another model decides what is permitted, are
// in none of them.
var dialects = []struct {
	sign string
	by   [Full + 1][]string
}{
	{"acceptedits", [...][]string{{"default", "manual", "ask"}, {"acceptedits"}, {"bypasspermissions"}}},           // Claude
	{"workspacewrite", [...][]string{{"readonly"}, {"workspacewrite"}, {"agentfullaccess", "fullaccess"}}},         // Codex
	{"readonly", [...][]string{{"readonly"}, {"auto", "workspacewrite"}, {"fullaccess", "dangerfullaccess"}}},      // Codex, before
	{"yolo", [...][]string{{"default"}, {"autoedit"}, {"yolo"}}},                                                   // Gemini, Qwen
	{"", [...][]string{{"ask", "default", "manual"}, {"acceptedits", "autoedit"}, {"full", "fullaccess", "yolo"}}}, // anybody
}

// mode returns the id of the mode for the permissions, and whether it fits. One that does
// not permits less; where there is none either, the id is empty.
func (c choice) mode(want Permissions) (id string, fits bool) {
	names := c.dialect()
	for p := want; p >= Ask; p-- {
		for _, name := range names[p] {
			if v, ok := c.plain(name); ok {
				return v.id, p == want
			}
		}
	}
	return "", false
}

// level returns the permissions that a mode stands for, if it is known.
func (c choice) level(id string) (Permissions, bool) {
	names := c.dialect()
	for p := Full; p >= Ask; p-- {
		for _, name := range names[p] {
			if v, ok := c.plain(name); ok && v.id == id {
				return p, true
			}
		}
	}
	return Ask, false
}

func (c choice) dialect() [Full + 1][]string {
	for _, d := range dialects {
		if _, ok := c.plain(d.sign); ok || d.sign == "" {
			return d.by
		}
	}
	return [Full + 1][]string{}
}

// plain returns the value whose id, or else whose name, is the given one but for case and
// punctuation.
func (c choice) plain(name string) (value, bool) {
	for _, of := range []func(value) string{func(v value) string { return v.id }, func(v value) string { return v.name }} {
		for _, v := range c.values {
			if plain(of(v)) == name {
				return v, true
			}
		}
	}
	return value{}, false
}

func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, s)
}
