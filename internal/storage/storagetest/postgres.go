package storagetest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
)

// variable has the DSN of a PostgreSQL database in which tests may make and drop schemas.
const variable = "COMPOZY_TEST_POSTGRES"

// server is the database in which each test has a schema of its own. Schemas are named
// test_<run>_<number>. To make one takes many times as long as to empty it, so those
// that hold nothing but the tables of the program are used again. What is left when the
// process ends is dropped by the next one.
type server struct {
	dsn *url.URL
	db  *sql.DB // one connection, which holds an advisory lock that says that the run lives
	run string

	mu   sync.Mutex
	made int
	free []string
}

// connect returns the server, and skips the test where there is none.
func connect(tb testing.TB) *server {
	tb.Helper()
	s, err := theServer()
	if err != nil {
		tb.Fatalf("connect to %s: %v", variable, err)
	}
	if s == nil {
		tb.SkipNow()
	}
	return s
}

var theServer = sync.OnceValues(func() (*server, error) {
	dsn := os.Getenv(variable) //nolint:forbidigo // settings of tests are no settings of the product
	if dsn == "" {
		_, _ = io.WriteString(os.Stderr, "postgres: not run; set "+variable+" to a DSN\n") //nolint:forbidigo // the line is of no single test
		return nil, nil                                                                    //nolint:nilnil // no server and nothing wrong
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	s := &server{dsn: u, db: db, run: strings.ToLower(rand.Text())}
	if err := s.exec(`SELECT pg_advisory_lock(hashtext($1))`, s.run); err != nil {
		return nil, err
	}
	return s, s.dropDeadRuns()
})

func (s *server) exec(statement string, args ...any) error {
	_, err := s.db.ExecContext(context.Background(), statement, args...)
	return err
}

// dropDeadRuns drops the schemas of runs whose lock is free: their processes have ended.
func (s *server) dropDeadRuns() error {
	return s.exec(`DO $$
		DECLARE name text;
		BEGIN
			FOR name IN SELECT nspname FROM pg_namespace WHERE nspname LIKE 'test\_%' AND split_part(nspname, '_', 2) <> '` + s.run + `' LOOP
				IF pg_try_advisory_xact_lock(hashtext(split_part(name, '_', 2))) THEN
					EXECUTE format('DROP SCHEMA IF EXISTS %I CASCADE', name);
				END IF;
			END LOOP;
		END $$`)
}

// fresh returns the DSN of a schema that does not exist yet. It is dropped when the test
// ends.
func (s *server) fresh(tb testing.TB) string {
	tb.Helper()
	schema := s.name()
	tb.Cleanup(func() {
		// A restore that was cut off leaves a second one.
		if err := s.exec("DROP SCHEMA IF EXISTS " + schema + ", " + schema + "_restore CASCADE"); err != nil {
			tb.Errorf("drop schema %s: %v", schema, err)
		}
	})
	return s.url(schema)
}

// reused returns the DSN of a schema that has no rows, and perhaps no tables. It is
// emptied when the test ends.
func (s *server) reused(tb testing.TB) string {
	tb.Helper()
	s.mu.Lock()
	var schema string
	if last := len(s.free) - 1; last >= 0 {
		schema, s.free = s.free[last], s.free[:last]
	}
	s.mu.Unlock()
	if schema == "" {
		schema = s.name()
	}
	tb.Cleanup(func() {
		if err := s.empty(schema); err != nil {
			tb.Errorf("empty schema %s: %v", schema, err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free = append(s.free, schema)
	})
	return s.url(schema)
}

// empty removes the rows of all tables, but for the one that counts migrations. It leaves
// tables alone that have none, since to truncate one is not cheap.
func (s *server) empty(schema string) error {
	return s.exec(`DO $$
		DECLARE name text; filled boolean; list text[];
		BEGIN
			FOR name IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
				WHERE schemaname = '` + schema + `' AND tablename <> 'goose_db_version' LOOP
				EXECUTE 'SELECT EXISTS (SELECT 1 FROM ' || name || ')' INTO filled;
				IF filled THEN list := list || name; END IF;
			END LOOP;
			IF list IS NOT NULL THEN
				EXECUTE 'TRUNCATE ' || array_to_string(list, ', ') || ' CASCADE';
			END IF;
		END $$`)
}

func (s *server) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	return fmt.Sprintf("test_%s_%d", s.run, s.made)
}

// url returns the DSN of a schema. Its commits are not synced: no test pulls the plug of
// the server.
func (s *server) url(schema string) string {
	u := *s.dsn
	options := u.Query()
	options.Set("search_path", schema)
	options.Set("synchronous_commit", "off")
	u.RawQuery = options.Encode()
	return u.String()
}
