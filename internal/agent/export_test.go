package agent

// Complaints returns what is kept of the agent's standard error.
func (a *Agent) Complaints() string { return a.stderr.String() }
