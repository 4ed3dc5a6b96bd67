// Package transcript makes of what an agent sends what a reader is shown: turns of items, with
// the text of each as it may be shown. A journal's entries are folded into them one by one, so
// that a turn that goes on is made from where it was, and however much an agent sends, a turn
// stays within its bounds. It knows no tables and no sessions.
package transcript
