package config

import "fmt"

// maxLimit is the highest limit, which no caller reaches.
const maxLimit = 1_000_000

// LimitSettings is the form of [limits]. What is nil is left to the next layer.
type LimitSettings struct {
	ReadsPerSecond  *float64 `toml:"reads_per_second" doc:"Reads a second that a relay may make on average. Default 50."`
	ReadsBurst      *int     `toml:"reads_burst" doc:"Reads that it may make at once. Default 100."`
	WritesPerSecond *float64 `toml:"writes_per_second" doc:"Writes a second that a relay may make on average. Default 10."`
	WritesBurst     *int     `toml:"writes_burst" doc:"Writes that it may make at once. Default 20."`
}

// Limits are two token buckets: what comes in a second, and what they hold.
type Limits struct {
	ReadsPerSecond  float64
	ReadsBurst      int
	WritesPerSecond float64
	WritesBurst     int
}

// defaultLimits is what holds where no layer says anything.
func defaultLimits() LimitSettings {
	return LimitSettings{ReadsPerSecond: new(50.0), ReadsBurst: new(100), WritesPerSecond: new(10.0), WritesBurst: new(20)}
}

// or returns l with d's values where l has none.
func (l LimitSettings) or(d LimitSettings) LimitSettings {
	return LimitSettings{
		ReadsPerSecond:  first(l.ReadsPerSecond, d.ReadsPerSecond),
		ReadsBurst:      first(l.ReadsBurst, d.ReadsBurst),
		WritesPerSecond: first(l.WritesPerSecond, d.WritesPerSecond),
		WritesBurst:     first(l.WritesBurst, d.WritesBurst),
	}
}

// limits returns the settings as plain values.
func (l LimitSettings) limits() Limits {
	return Limits{
		ReadsPerSecond:  value(l.ReadsPerSecond),
		ReadsBurst:      value(l.ReadsBurst),
		WritesPerSecond: value(l.WritesPerSecond),
		WritesBurst:     value(l.WritesBurst),
	}
}

// check returns what is wrong with a table wherever it stands, its key first. Infinity is
// above the highest limit, and what is no number is above nothing.
func (l LimitSettings) check() error {
	for _, rate := range []struct {
		key   string
		value *float64
	}{{"reads_per_second", l.ReadsPerSecond}, {"writes_per_second", l.WritesPerSecond}} {
		if rate.value != nil && (!(*rate.value > 0) || *rate.value > maxLimit) {
			return fmt.Errorf("%s: use a number above 0 and up to %d, or leave it out for the default", rate.key, maxLimit)
		}
	}
	for _, burst := range []struct {
		key   string
		value *int
	}{{"reads_burst", l.ReadsBurst}, {"writes_burst", l.WritesBurst}} {
		if burst.value != nil && (*burst.value < 1 || *burst.value > maxLimit) {
			return fmt.Errorf("%s: use a number from 1 to %d, or leave it out for the default", burst.key, maxLimit)
		}
	}
	return nil
}
