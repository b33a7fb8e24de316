package drive

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

//go:embed testdata/sqlite_threads.c
var sqliteSource []byte

// keep writes a file into the directory of this run.
func (j *Job) keep(name string, content []byte) (string, error) {
	path := filepath.Join(j.Dir, name)
	return path, os.WriteFile(path, content, 0o644)
}

// sub makes a directory in that of this run.
func (j *Job) sub(name string) (string, error) {
	path := filepath.Join(j.Dir, name)
	return path, os.MkdirAll(path, 0o755)
}

// compile gives the path of a C program built from source, once for all runs.
func (j *Job) compile(ctx context.Context, name string, source []byte, flags ...string) (string, error) {
	path := filepath.Join(j.Shared, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(j.Shared, 0o755); err != nil {
		return "", err
	}
	file := path + ".c"
	if err := os.WriteFile(file, source, 0o644); err != nil {
		return "", err
	}
	_, err := j.tool(ctx, "gcc", append([]string{"-O2", "-g", "-Wall", "-Wextra", "-pthread", "-o", path, file}, flags...)...)
	return path, err
}

func sqliteThreads(ctx context.Context, j *Job) (Outcome, error) {
	prog, err := j.compile(ctx, "sqlite_threads", sqliteSource, "-lsqlite3")
	if err != nil {
		return Outcome{}, err
	}
	return j.batch(ctx, "", prog, filepath.Join(j.Dir, "data.db"), strconv.Itoa(j.Size.pick(400, 16_000, 40_000)))
}

// The shell sorts with helper threads (PRAGMA threads) when it makes an index over more than the cache holds.
func sqliteShell(ctx context.Context, j *Job) (Outcome, error) {
	rows := j.Size.pick(300_000, 600_000, 3_000_000)
	script, err := j.input(fmt.Sprintf("shell-%d.sql", rows), func(w *bufio.Writer) {
		fmt.Fprintf(w, `PRAGMA threads=4;
PRAGMA cache_size=-2000;
PRAGMA journal_mode=OFF;
CREATE TABLE t(a INTEGER, b INTEGER, c TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%d)
INSERT INTO t SELECT i, (i*2654435761)%%4294967296, printf('%%08x', (i*40503)%%65536) FROM n;
CREATE INDEX tb ON t(b);
CREATE INDEX tc ON t(c, a);
SELECT count(*), sum(a), min(b), max(b) FROM t;
SELECT count(*) FROM (SELECT b FROM t ORDER BY c DESC, b);
PRAGMA integrity_check;
`, rows)
	})
	if err != nil {
		return Outcome{}, err
	}
	return j.batch(ctx, script, "sqlite3", "-batch", filepath.Join(j.Dir, "shell.db"))
}
