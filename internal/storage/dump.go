package storage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"compozy.dev/compozy/internal/fault"
)

// dumpFormat names the format of a PostgreSQL backup: JSON lines, the first of which has
// the format and the schema version. A line with a table's name comes before that
// table's rows, and the last line has the number of rows of each table.
const dumpFormat = "compozy postgres backup 1"

// dumpBatch is how many rows are put back in one statement.
const dumpBatch = 500

type dumpLine struct {
	Format  string           `json:"format,omitempty"`
	Version int64            `json:"version,omitempty"`
	Table   string           `json:"table,omitempty"`
	Row     json.RawMessage  `json:"row,omitempty"`
	Rows    map[string]int64 `json:"rows,omitempty"`
}

// dumpPostgres writes every row of one snapshot to the file.
func (db *DB) dumpPostgres(ctx context.Context, to *os.File) error {
	buffer := bufio.NewWriter(to)
	err := db.dump(ctx, json.NewEncoder(buffer))
	return errors.Join(err, buffer.Flush())
}

func (db *DB) dump(ctx context.Context, out *json.Encoder) error {
	out.SetEscapeHTML(false)
	version, err := schemaVersion(ctx, db.dialect, db.reader)
	if err != nil {
		return err
	}
	if err := out.Encode(dumpLine{Format: dumpFormat, Version: version}); err != nil {
		return err
	}
	return db.View(ctx, func(tx *Tx) error {
		tables, err := tx.tables()
		if err != nil {
			return err
		}
		rows := make(map[string]int64, len(tables))
		for _, t := range tables {
			if err := out.Encode(dumpLine{Table: t.name}); err != nil {
				return err
			}
			if rows[t.name], err = tx.dumpTable(t, out); err != nil {
				return fmt.Errorf("dump table %s: %w", t.name, err)
			}
		}
		return out.Encode(dumpLine{Rows: rows})
	})
}

type table struct {
	name    string
	columns string // quoted, without those that the engine computes
}

// tables returns the tables of the schema, without the one that counts migrations.
func (tx *Tx) tables() ([]table, error) {
	rows, err := tx.Query(`SELECT c.relname, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname <> 'goose_db_version'
		GROUP BY c.relname ORDER BY c.relname`)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var list []table
	for rows.Next() {
		var t table
		if err := rows.Scan(&t.name, &t.columns); err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		list = append(list, t)
	}
	return list, rows.Err()
}

func (tx *Tx) dumpTable(t table, out *json.Encoder) (n int64, err error) {
	rows, err := tx.Query(`SELECT row_to_json(r)::text FROM (SELECT ` + t.columns + ` FROM ` + quote(t.name) + `) r`)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var row []byte
		if err := rows.Scan(&row); err != nil {
			return 0, err
		}
		if err := out.Encode(dumpLine{Row: row}); err != nil {
			return 0, err
		}
		n++
	}
	return n, rows.Err()
}

// restorePostgres builds a schema beside the present one, fills it from the backup, and
// has it take the other's name in one transaction.
func (db *DB) restorePostgres(ctx context.Context, backup string) (kept string, err error) {
	version, err := checkDump(backup)
	if err != nil {
		return "", err
	}
	config, schema, err := parsePostgres(db.cfg.DSN)
	if err != nil {
		return "", err
	}
	db.writer = postgresWriter(config, schema)
	db.reader = stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.knows(db.writer, backup, version); err != nil {
		return "", err
	}
	// The first use of the writer takes the lock, which keeps daemons out.
	present, err := schemaVersion(ctx, db.dialect, db.writer)
	if err != nil {
		return "", err
	}
	beside := schema + "_restore"
	if _, err := db.writer.ExecContext(ctx, "DROP SCHEMA IF EXISTS "+beside+" CASCADE; CREATE SCHEMA "+beside); err != nil {
		return "", fmt.Errorf("make schema %s: %w", beside, err)
	}
	if err := db.fillSchema(ctx, config, beside, backup, version); err != nil {
		return "", err
	}
	if present > 0 {
		kept = db.keptPath(db.cfg.Now().UTC().Format(stamp))
		if err := db.Backup(ctx, kept); err != nil {
			return "", err
		}
	}
	return kept, db.Do(ctx, func(tx *Tx) error {
		_, err := tx.Exec("DROP SCHEMA IF EXISTS " + schema + " CASCADE")
		if err == nil {
			_, err = tx.Exec("ALTER SCHEMA " + beside + " RENAME TO " + schema)
		}
		return err
	})
}

// checkDump reads a backup to its end and returns its schema version.
func checkDump(path string) (version int64, err error) {
	damaged := func(what string) error {
		return fault.New(fault.InvalidArgument, "%s is not a complete PostgreSQL backup of Compozy (%s); choose another backup", path, what)
	}
	lines, done, err := openDump(path)
	if err != nil {
		return 0, err
	}
	defer done()
	var head dumpLine
	if err := lines.Decode(&head); err != nil || head.Format != dumpFormat || head.Version < 1 {
		return 0, damaged("it does not begin like one")
	}
	counted := map[string]int64{}
	var name string
	for {
		var line dumpLine
		if err := lines.Decode(&line); err != nil {
			return 0, damaged("it ends too early")
		}
		switch {
		case line.Rows != nil:
			if !maps.Equal(counted, line.Rows) {
				return 0, damaged("rows are missing")
			}
			return head.Version, nil
		case line.Table != "":
			name = line.Table
			counted[name] = 0
		default:
			counted[name]++
		}
	}
}

// fillSchema migrates an empty schema to the version of the backup and puts the rows in.
func (db *DB) fillSchema(ctx context.Context, config *pgx.ConnConfig, schema, backup string, version int64) (err error) {
	config = config.Copy()
	config.RuntimeParams["search_path"] = schema
	pool := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, pool.Close()) }()
	provider, _, err := db.migrator(pool)
	if err != nil {
		return err
	}
	if _, err := provider.UpTo(ctx, version); err != nil {
		return fmt.Errorf("migrate schema %s: %w", schema, err)
	}
	beside := &DB{cfg: db.cfg, dialect: db.dialect, writer: pool}
	return beside.Do(ctx, func(tx *Tx) error { return tx.load(backup) })
}

// load puts the rows of a backup that checkDump has read into the tables, which are
// empty. Foreign keys are dropped first, since rows refer to later ones, and checked
// when they are made again.
func (tx *Tx) load(backup string) error {
	drop, add, err := tx.foreignKeys()
	if err != nil {
		return err
	}
	tables, err := tx.tables()
	if err != nil {
		return err
	}
	if err := tx.execAll(drop); err != nil {
		return err
	}
	lines, done, err := openDump(backup)
	if err != nil {
		return err
	}
	defer done()
	var into table
	var rows []json.RawMessage
	for {
		var line dumpLine
		if err := lines.Decode(&line); err != nil {
			return err
		}
		if line.Row != nil {
			rows = append(rows, line.Row)
		}
		if len(rows) == dumpBatch || line.Row == nil {
			if err := tx.insert(into, rows); err != nil {
				return fmt.Errorf("fill table %s: %w", into.name, err)
			}
			rows = rows[:0]
		}
		if line.Rows != nil {
			return tx.execAll(add)
		}
		if line.Table == "" {
			continue
		}
		i := slices.IndexFunc(tables, func(t table) bool { return t.name == line.Table })
		if i < 0 {
			return fault.New(fault.InvalidArgument, "%s has a table %q that its schema version does not know; choose another backup", backup, line.Table)
		}
		into = tables[i]
	}
}

func (tx *Tx) insert(into table, rows []json.RawMessage) error {
	if len(rows) == 0 {
		return nil
	}
	list, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO `+quote(into.name)+` (`+into.columns+`)
		SELECT `+into.columns+` FROM json_populate_recordset(NULL::`+quote(into.name)+`, ?::json)`, string(list))
	return err
}

// foreignKeys returns the statements that drop the foreign keys of the schema, and those
// that make them again.
func (tx *Tx) foreignKeys() (drop, add []string, err error) {
	rows, err := tx.Query(`SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(oid)
		FROM pg_constraint WHERE contype = 'f' AND connamespace = current_schema()::regnamespace`)
	if err != nil {
		return nil, nil, fmt.Errorf("list foreign keys: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var relation, name, definition string
		if err := rows.Scan(&relation, &name, &definition); err != nil {
			return nil, nil, fmt.Errorf("list foreign keys: %w", err)
		}
		drop = append(drop, "ALTER TABLE "+relation+" DROP CONSTRAINT "+name)
		add = append(add, "ALTER TABLE "+relation+" ADD CONSTRAINT "+name+" "+definition)
	}
	return drop, add, rows.Err()
}

func (tx *Tx) execAll(statements []string) error {
	for _, s := range statements {
		if _, err := tx.Exec(s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

func openDump(path string) (lines *json.Decoder, done func(), err error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the backup
	if err != nil {
		return nil, nil, err
	}
	return json.NewDecoder(bufio.NewReader(f)), func() { _ = f.Close() }, nil // only read
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
