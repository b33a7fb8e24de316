package drive

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// redis serves redis-benchmark with I/O threads.
func redis(ctx context.Context, j *Job) (Outcome, error) {
	return redisWith(ctx, j, "--io-threads", "2", "--io-threads-do-reads", "yes")
}

// redisDefault is redis as Debian ships it: one thread serves, others sync and free.
func redisDefault(ctx context.Context, j *Job) (Outcome, error) { return redisWith(ctx, j) }

// redisWith serves redis-benchmark; then keys are counted and its data is summed up by DEBUG DIGEST.
func redisWith(ctx context.Context, j *Job, flags ...string) (Outcome, error) {
	port, err := freePort()
	if err != nil {
		return Outcome{}, err
	}
	p := strconv.Itoa(port)
	s, err := j.serve(ctx, reachable(net.JoinHostPort("127.0.0.1", p)), "redis-server", append([]string{"--bind", "127.0.0.1", "--port", p, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec",
		"--enable-debug-command", "local", "--dir", j.Dir, "--loglevel", "warning"}, flags...)...)
	if err != nil {
		return Outcome{}, err
	}
	requests := strconv.Itoa(j.Size.pick(2_000, 200_000, 600_000))
	start := time.Now()
	// The tests of redis-benchmark that leave data that does not depend on chance: -r is not given.
	bench, err := j.tool(s.ctx, "redis-benchmark", "-p", p, "-n", requests, "-c", "8", "-P", "4", "-q", "-t", "set,get,incr,lpush")
	took := time.Since(start)
	var facts []string
	if err == nil {
		facts, err = redisFacts(s.ctx, j, p, bench)
	}
	if err == nil {
		_, err = j.tool(s.ctx, "redis-cli", "-p", p, "BGREWRITEAOF") // a fork while the threads are there
	}
	if err == nil {
		err = j.redisRewritten(s.ctx, p)
	}
	if err != nil {
		s.kill()
		return Outcome{}, fmt.Errorf("%w\n%s", err, tail(s.out.bytes()))
	}
	if _, err := j.tool(s.ctx, "redis-cli", "-p", p, "SHUTDOWN", "NOSAVE"); err != nil {
		s.kill()
		return Outcome{}, err
	}
	out, err := s.wait()
	out.Time, out.Facts = took, facts
	out.Stdout = nil // its log: times and process ids
	return out, err
}

func redisFacts(ctx context.Context, j *Job, port string, bench []byte) ([]string, error) {
	var facts []string
	for _, line := range strings.FieldsFunc(string(bench), func(r rune) bool { return r == '\n' || r == '\r' }) {
		if name, _, ok := strings.Cut(line, ": "); ok && strings.Contains(line, "requests per second") {
			facts = append(facts, "benchmark "+name)
		}
	}
	for _, question := range [][]string{{"DBSIZE"}, {"DEBUG", "DIGEST"}, {"LLEN", "mylist"}, {"GET", "counter:__rand_int__"}} {
		answer, err := j.tool(ctx, "redis-cli", append([]string{"-p", port}, question...)...)
		if err != nil {
			return nil, err
		}
		facts = append(facts, strings.Join(question, " ")+" "+string(bytes.TrimSpace(answer)))
	}
	return facts, nil
}

// redisRewritten waits until the forked child has rewritten the log, and says whether it could.
func (j *Job) redisRewritten(ctx context.Context, port string) error {
	for {
		info, err := j.tool(ctx, "redis-cli", "-p", port, "INFO", "persistence")
		if err != nil {
			return err
		}
		if bytes.Contains(info, []byte("aof_rewrite_in_progress:0")) && bytes.Contains(info, []byte("aof_rewrite_scheduled:0")) {
			if !bytes.Contains(info, []byte("aof_last_bgrewrite_status:ok")) {
				return fmt.Errorf("redis could not rewrite its log:\n%s", info)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
