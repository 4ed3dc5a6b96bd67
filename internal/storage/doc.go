// Package storage opens the one database, runs its migrations and hands out
// transactions. It knows two engines: SQLite in a file of the data directory, and
// PostgreSQL. Nothing above it and the store.go files knows which one it is.
//
// What always holds:
//   - There is one writer. On SQLite it is the only connection that may write; on
//     PostgreSQL it is the one connection that holds the database's advisory lock. So
//     a function given to Do reads what it is about to change without a race, on both
//     engines and without retries, and a daemon that has lost the lock cannot write.
//   - What Do has acknowledged is on disk. What it has not is gone, all of it.
//   - A function given to View sees one snapshot.
//
// Rows have the same shape on both engines: ids are text, times are epoch
// milliseconds, structures are JSON text, booleans are the integers 0 and 1. Statements
// are written once, with ? for arguments; Dialect has the few words that differ. On
// PostgreSQL a text column that is sorted or compared by less-than is COLLATE "C", so
// that both engines sort it alike.
//
// Migrations are goose files, one folder an engine, and only go forward. They name no
// schema and no sequence.
package storage
