package drive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var sysbenchFacts = regexp.MustCompile(`(?m)^\s*(transactions|ignored errors|reconnects):\s+(\d+)`)

// mariadb serves sysbench's mixed load over a socket in its own directory; then its tables are checked.
func mariadb(ctx context.Context, j *Job) (Outcome, error) {
	fresh, err := j.mariadbTables(ctx)
	if err != nil {
		return Outcome{}, err
	}
	data := filepath.Join(j.Dir, "data")
	if _, err := j.tool(ctx, "cp", "-a", "--reflink=auto", fresh, data); err != nil {
		return Outcome{}, err
	}
	socket := filepath.Join(j.Dir, "sock")
	client := func(sql string) (string, error) {
		out, err := j.tool(ctx, "mariadb", "--no-defaults", "-uroot", "-S", socket, "-N", "-B", "-e", sql)
		return strings.TrimSpace(string(out)), err
	}
	s, err := j.serve(ctx, func() error { _, err := client("SELECT 1"); return err }, "mariadbd", mariadbOptions(data, socket)...)
	if err != nil {
		return Outcome{}, err
	}
	var facts []string
	took, err := func() (time.Duration, error) {
		sysbench := func(what, events string) ([]byte, error) {
			return j.tool(s.ctx, "sysbench", "oltp_read_write", "--db-driver=mysql", "--mysql-user=root", "--mysql-db=sb", "--mysql-socket="+socket,
				"--tables=4", "--table-size=2000", "--threads=8", "--time=0", "--events="+events, "--rand-seed=1", what)
		}
		if _, err := client("CREATE DATABASE sb"); err != nil {
			return 0, err
		}
		if _, err := sysbench("prepare", "0"); err != nil {
			return 0, err
		}
		start := time.Now()
		text, err := sysbench("run", strconv.Itoa(j.Size.pick(600, 12_000, 40_000)))
		took := time.Since(start)
		if err != nil {
			return 0, err
		}
		for _, m := range sysbenchFacts.FindAllSubmatch(text, -1) {
			if string(m[1]) == "ignored errors" {
				continue // rows locked crosswise by two transactions: chance decides how many
			}
			facts = append(facts, fmt.Sprintf("sysbench %s %s", m[1], m[2]))
		}
		for _, sql := range []string{
			"SELECT COUNT(*) FROM sb.sbtest1", "SELECT COUNT(*) FROM sb.sbtest4",
			"CHECK TABLE sb.sbtest1, sb.sbtest2, sb.sbtest3, sb.sbtest4",
		} {
			answer, err := client(sql)
			if err != nil {
				return 0, err
			}
			facts = append(facts, sql+": "+strings.Join(strings.Fields(answer), " "))
		}
		return took, nil
	}()
	if err != nil {
		s.kill()
		return Outcome{}, fmt.Errorf("%w\n%s", err, tail(s.err.bytes()))
	}
	out, err := s.stop(syscall.SIGTERM)
	out.Time, out.Facts = took, facts
	log := string(out.Stderr)
	for _, bad := range []string{"[ERROR]", "InnoDB: Assertion", "got signal", "semaphore wait"} {
		out.Facts = append(out.Facts, fmt.Sprintf("log has %q: %v", bad, strings.Contains(log, bad)))
	}
	if err == nil && out.Exit == 0 {
		out.Stderr = nil // its log, with times
	}
	return out, err
}

func mariadbOptions(data, socket string) []string {
	args := []string{"--no-defaults", "--datadir=" + data, "--socket=" + socket, "--pid-file=" + socket + ".pid", "--skip-networking",
		"--lc-messages-dir=/usr/share/mysql", "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2", "--thread-handling=one-thread-per-connection",
		"--plugin-dir=/usr/lib/mysql/plugin", "--skip-log-bin", "--innodb-log-file-size=32M"}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	return args
}

// mariadbTables gives a data directory with the system tables, made natively and copied for each run.
func (j *Job) mariadbTables(ctx context.Context) (string, error) {
	data := filepath.Join(j.Shared, "mariadb-data")
	if _, err := os.Stat(data); err == nil {
		return data, nil
	}
	making := data + ".new"
	if err := os.RemoveAll(making); err != nil {
		return "", err
	}
	if err := os.MkdirAll(making, 0o755); err != nil {
		return "", err
	}
	args := []string{"--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--datadir=" + making, "--innodb-log-file-size=32M"}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	if _, err := j.tool(ctx, "mariadb-install-db", args...); err != nil {
		return "", err
	}
	return data, os.Rename(making, data)
}
