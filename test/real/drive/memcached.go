package drive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// memcached is loaded by connections of our own: sets, gets, counters and deletes, pipelined by 16, each reply checked.
func memcached(ctx context.Context, j *Job) (Outcome, error) {
	port, err := freePort()
	if err != nil {
		return Outcome{}, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	args := []string{"-l", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "0", "-t", "4", "-m", "64"}
	if os.Getuid() == 0 {
		args = append(args, "-u", "nobody")
	}
	s, err := j.serve(ctx, reachable(addr), "memcached", args...)
	if err != nil {
		return Outcome{}, err
	}
	const connections = 8
	rounds := j.Size.pick(400, 12_000, 40_000)
	errs := make([]error, connections)
	start := time.Now()
	var all sync.WaitGroup
	for c := range connections {
		all.Add(1)
		go func() {
			defer all.Done()
			errs[c] = memcachedLoad(addr, c, rounds)
		}()
	}
	all.Wait()
	took := time.Since(start)
	err = errors.Join(errs...)
	var facts []string
	if err == nil {
		facts, err = memcachedFacts(addr, connections)
	}
	if err != nil {
		s.kill()
		return Outcome{}, fmt.Errorf("memcached: %w\n%s", err, tail(s.err.bytes()))
	}
	out, err := s.stop(syscall.SIGTERM)
	out.Time, out.Facts = took, facts
	return out, err
}

func dialMemcached(addr string) (*bufio.ReadWriter, net.Conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	if err := c.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		return nil, nil, err
	}
	return bufio.NewReadWriter(bufio.NewReaderSize(c, 1<<16), bufio.NewWriterSize(c, 1<<16)), c, nil
}

// memcachedLoad writes and reads back keys of its own and adds to a counter that all connections share.
func memcachedLoad(addr string, id, rounds int) error {
	rw, c, err := dialMemcached(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	want := make([]byte, 0, 1<<16)
	got := make([]byte, 1<<16)
	if id == 0 {
		if _, err := rw.WriteString("add shared 0 0 1\r\n0\r\n"); err != nil {
			return err
		}
		want = append(want, "STORED\r\n"...)
	}
	for r := range rounds {
		for k := range 16 {
			key := fmt.Sprintf("key-%d-%d", id, (r*16+k)%2000)
			value := fmt.Sprintf("value %d of %d in round %d", k, id, r)
			fmt.Fprintf(rw, "set %s 7 0 %d\r\n%s\r\nget %s\r\n", key, len(value), value, key)
			want = fmt.Appendf(want, "STORED\r\nVALUE %s 7 %d\r\n%s\r\nEND\r\n", key, len(value), value)
		}
		if err := rw.Flush(); err != nil {
			return err
		}
		if _, err := io.ReadFull(rw, got[:len(want)]); err != nil {
			return fmt.Errorf("round %d: %w", r, err)
		}
		if string(got[:len(want)]) != string(want) {
			return fmt.Errorf("round %d: %q instead of %q", r, got[:len(want)], want)
		}
		want = want[:0]
		if _, err := rw.WriteString("incr total-" + strconv.Itoa(id) + " 1\r\n"); err != nil {
			return err
		}
		want = append(want, "NOT_FOUND\r\n"...)
	}
	return nil
}

// memcachedFacts is what the server says of what happened.
func memcachedFacts(addr string, connections int) ([]string, error) {
	rw, c, err := dialMemcached(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := rw.WriteString("stats\r\n"); err != nil {
		return nil, err
	}
	if err := rw.Flush(); err != nil {
		return nil, err
	}
	var facts []string
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if line == "END\r\n" {
			return facts, nil
		}
		var name, value string
		if _, err := fmt.Sscanf(line, "STAT %s %s", &name, &value); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		switch name {
		case "cmd_get", "cmd_set", "get_hits", "get_misses", "curr_items", "total_items", "threads", "evictions", "incr_misses":
			facts = append(facts, name+" "+value)
		}
	}
}
