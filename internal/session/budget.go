package session

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// micros is how many millionths a US dollar has.
const micros = 1e6

// today returns when the day of t began, in UTC, by which budgets are counted.
func today(t time.Time) time.Time {
	return t.UTC().Truncate(24 * time.Hour)
}

// overBudget returns which cap forbids another turn of a session that descends from root,
// with its setting; empty: none does.
func (st *store) overBudget(rules Rules, root string) (string, error) {
	day, err := st.spent(today(st.tx.Now()))
	if err != nil {
		return "", err
	}
	if reason := over(day, rules.DayUSD, rules.DayTokens, "the workspace's sessions of today", "sessions.usd_per_day", "sessions.tokens_per_day"); reason != "" {
		return reason + "; it begins anew at 00:00 UTC", nil
	}
	line, err := st.spentBy(root, time.UnixMilli(0))
	if err != nil {
		return "", err
	}
	if reason := over(line, rules.SessionUSD, rules.SessionTokens, "the session and those it started", cmp.Or(rules.boundedUSD, "sessions.usd_per_session"), cmp.Or(rules.boundedTokens, "sessions.tokens_per_session")); reason != "" {
		return reason, nil
	}
	if rules.DayTurns <= 0 {
		return "", nil
	}
	turns, err := st.unreported(today(st.tx.Now()))
	if err == nil && turns >= rules.DayTurns {
		return fmt.Sprintf("agents that do not report what they use had %d turns today, as many as sessions.turns_per_day allows; it begins anew at 00:00 UTC", turns), nil
	}
	return "", err
}

// over returns which of two caps is used up; a cap of zero is none.
func over(s Spent, usd float64, tokens int64, who, setUSD, setTokens string) string {
	switch {
	case usd > 0 && s.CostMicros >= int64(math.Round(usd*micros)):
		return fmt.Sprintf("%s cost %.2f USD, and %s allows %.2f", who, float64(s.CostMicros)/micros, setUSD, usd)
	case tokens > 0 && s.Tokens >= tokens:
		return fmt.Sprintf("%s used %d tokens, and %s allows %d", who, s.Tokens, setTokens, tokens)
	default:
		return ""
	}
}
