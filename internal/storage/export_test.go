package storage

// Open and Restore with migrations of a test's own, and those that the program has.
var (
	OpenWith    = open
	RestoreWith = restore
	Migrations  = migrations
)
