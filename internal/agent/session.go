package agent

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// Handler takes what a session yields. All its methods are called from one goroutine.
type Handler interface {
	// Event is called for every event, in order within its process; the events of a forked process come after those that its parent
	// sent before. e is the callee's only until it returns.
	Event(process uint64, e *wire.Event)
	// Batch is called after every pass over the rings that yielded events, and at least every interval of the loop.
	Batch()
	// End says that the process is gone and that all its events have been handed out.
	End(process uint64)
}

// Recorder takes the words of the lanes as they come, without order between lanes: trace.Writer.
type Recorder interface {
	// Chunk takes whole records of one lane; words are the callee's only until it returns.
	Chunk(process uint64, key trace.LaneKey, words []uint64) error
	// Bound says that all events of process older than ts have been given to Chunk.
	Bound(process, ts uint64) error
	// Gone says that process has ended, and that all its events have been given to Chunk.
	Gone(process uint64) error
	// Flush is called when the rings have run empty.
	Flush() error
}

// Options of a session. Handler or Recorder must be given.
type Options struct {
	Config   wire.Config // what agents are told; zero sizes get their defaults
	Handler  Handler
	Recorder Recorder
	// Warn is told, once each, what went wrong without ending the session. May be called from several goroutines. May be nil.
	Warn func(text string)
	// Patcher patches the code of processes; nil: none is patched.
	Patcher Patcher
	// Runtime is that of an Instrumented, in whose place the agent is loaded; the Patcher must be there, and Config.All set. Empty: there is none.
	Runtime string
	// Library replaces the embedded agent; for tests.
	Library []byte
}

// Patcher serves processes whose code is patched: engine.Engine.
type Patcher interface {
	// Attach gives the descriptors for a process that asks for them: its wire.PatchPage, and memory to share. They stay the Patcher's. An error: it is not patched.
	Attach(process uint64, pid int) ([2]int, error)
	// Gone says that a process that was attached has ended or become another program.
	Gone(process uint64)
}

// Defaults of wire.Config.
const (
	DefaultStackDepth  = 32
	DefaultAllocDepth  = 12
	DefaultLaneBytes   = 256 << 10
	DefaultNestBytes   = 16 << 10
	DefaultTableWaitMs = 10_000
)

// Session is what one run shares with its agents. Make it with New and end it with Close.
type Session struct {
	opts   Options
	lib    *library
	dir    string
	lock   *os.File // held as long as we live: tells others that the directory is not stale
	ctl    *ctl
	doors  []*door
	tables *tables
	slack  uint64 // in ticks; see 'Order of events' in docs/architecture.md

	mu        sync.Mutex
	processes map[uint64]*process
	order     []*process // by id: a parent comes before its children
	warned    map[string]bool
	closed    bool
	stats     Stats          // of processes that are gone, and counters
	calls     []ProcessCalls // of processes that are gone
	queue     []func()       // run by the loop between passes
	forked    bool           // a process has said that it made another

	asking chan struct{} // holds a token while a process is asked (AskEpochs)
	asked  uint32        // the number of the last question; with the token
	look   unix.Timespec // askEvery, where the kernel may read it

	conns    map[int]bool // descriptors of connections that are being served
	settling bool
	serving  sync.WaitGroup

	loopStop chan struct{}
	loopDone chan struct{}

	// Of the loop.
	openTime               time.Duration
	events, words, threads uint64 // not yet in stats
	children               bool   // not yet in forked
	scratch, polled        []*process
	polls                  []unix.PollFd
	batched                time.Time
	flushed                bool
	sinkErr                error // first error of the Recorder
}

// New makes a session: directory, control page, socket, drain loop.
func New(o Options) (*Session, error) {
	if o.Handler == nil && o.Recorder == nil {
		panic("BUG: a session without Handler and Recorder")
	}
	if o.Config.StackDepth > wire.MaxRecordWords/2 || o.Config.AllocDepth > wire.MaxRecordWords/2 {
		return nil, fmt.Errorf("a stack may have at most %d frames", wire.MaxRecordWords/2)
	}
	if o.Config.LaneBytes == 0 {
		o.Config.LaneBytes = DefaultLaneBytes
	}
	if o.Config.NestBytes == 0 {
		o.Config.NestBytes = DefaultNestBytes
	}
	if o.Config.TableWaitMs == 0 {
		o.Config.TableWaitMs = DefaultTableWaitMs
	}
	if o.Patcher != nil {
		o.Config.Patch = max(o.Config.Patch, 1)
	}
	lib, err := openLibrary(o.Patcher != nil && o.Config.All != 0, o.Runtime)
	if o.Library != nil {
		lib, err = &library{ReaderAt: bytes.NewReader(o.Library), size: int64(len(o.Library))}, nil
	}
	if err != nil {
		return nil, err
	}
	s := &Session{
		opts: o, lib: lib, processes: map[uint64]*process{}, warned: map[string]bool{}, conns: map[int]bool{}, asking: make(chan struct{}, 1), look: unix.NsecToTimespec(int64(askEvery)),
		loopStop: make(chan struct{}), loopDone: make(chan struct{}),
		slack: ticksPer(slackTime), openTime: openTime, flushed: true,
	}
	s.tables = newTables(s.warn)
	if s.ctl, err = newCtl(); err != nil {
		return nil, err
	}
	if err = s.makeDir(); err != nil {
		s.ctl.close()
		return nil, err
	}
	if err = s.openDoors(); err != nil {
		s.ctl.close()
		s.removeDir()
		return nil, fmt.Errorf("cannot make the session's socket: %w", err)
	}
	go s.loop()
	return s, nil
}

// Dir is the session's directory.
func (s *Session) Dir() string { return s.dir }

// Environ returns env with what makes the agent load and find the session. The agent takes both out again, element by element, so
// that the user's own LD_PRELOAD stays where it was.
func (s *Session) Environ(env []string) []string {
	preload := "LD_PRELOAD=" + filepath.Join(s.dir, libraryName)
	out := make([]string, 0, len(env)+2)
	last := -1
	for _, e := range env {
		if strings.HasPrefix(e, "RIPSTOP_SESSION=") {
			continue // of a ripstop that runs us; its agent is not in a Go program
		}
		if strings.HasPrefix(e, "LD_PRELOAD=") {
			last = len(out) // ld.so heeds the last one
		}
		out = append(out, e)
	}
	if last >= 0 {
		out[last] = preload + ":" + strings.TrimPrefix(out[last], "LD_PRELOAD=")
		out = append(out, "RIPSTOP_PAD=") // what the agent takes out again must be an even number of entries (init.c)
	} else {
		out = append(out, preload)
	}
	return append(out, "RIPSTOP_SESSION="+s.dir)
}

// warn passes text on, once.
func (s *Session) warn(text string) {
	s.mu.Lock()
	again := s.warned[text]
	s.warned[text] = true
	s.mu.Unlock()
	if !again && s.opts.Warn != nil {
		s.opts.Warn(text)
	}
}

// Close takes in what is under way, drains what is left, lets living processes go, and removes the session's directory. It returns
// the processes that live on and the first error of the Recorder.
func (s *Session) Close() (left []Info, err error) {
	s.awaitLast()
	s.settle()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errors.New("the session is closed already")
	}
	s.closed = true
	s.mu.Unlock()

	close(s.loopStop)
	s.ctl.ring()
	<-s.loopDone // the last pass over the rings is made by the loop
	s.ctl.tellLost(s.warn)
	left = s.Living()
	s.release()
	s.ctl.close()
	s.tables.close()
	s.removeDir()
	return left, s.sinkErr
}

// --- the directory -----------------------------------------------------------------------------------------------------

// dirPrefix begins the name of every session directory; a pid and a random number follow.
const dirPrefix = "ripstop-"

// staleAfter protects a directory that is just being made, and not locked yet, from other sessions' cleaning.
const staleAfter = 10 * time.Second

func candidates() []string {
	var list []string
	seen := map[string]bool{"": true}
	for _, d := range []string{os.Getenv("TMPDIR"), "/tmp", "/dev/shm", "/var/tmp", os.Getenv("XDG_RUNTIME_DIR")} {
		if abs, err := filepath.Abs(d); err == nil && d != "" && !seen[abs] {
			seen[abs] = true
			list = append(list, abs)
		}
	}
	return list
}

// searchableByAll tells whether a process of any user can reach files below dir by name.
func searchableByAll(dir string) bool {
	for {
		fi, err := os.Stat(dir)
		if err != nil || fi.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

// makeDir makes the session's directory in the first place that will do. Places that another user could not reach come last: they
// serve as long as the target does not change its user.
func (s *Session) makeDir() error {
	var errs []error
	dirs := candidates()
	for _, d := range dirs {
		cleanStale(d)
	}
	for _, wantSearchable := range []bool{true, false} {
		for _, d := range dirs {
			if searchableByAll(d) != wantSearchable {
				continue
			}
			if strings.ContainsAny(d, " :\t\n") {
				errs = append(errs, fmt.Errorf("%s: ld.so takes a space or colon in LD_PRELOAD for a separator", d))
				continue
			}
			err := s.tryDir(d)
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
	}
	return fmt.Errorf("no directory for the agent's library; set TMPDIR to one that is writable and not mounted noexec:\n%w", errors.Join(errs...))
}

func (s *Session) tryDir(parent string) (err error) {
	var r [16]byte
	if _, err := rand.Read(r[:]); err != nil {
		return err
	}
	dir := filepath.Join(parent, fmt.Sprintf("%s%d-%s", dirPrefix, os.Getpid(), hex.EncodeToString(r[:])))
	// sun_path holds 108 bytes, and ld.so's LD_PRELOAD elements are bounded too.
	if len(dir)+len("/sock") > 100 {
		return fmt.Errorf("%s: the name is too long for a socket", parent)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	s.dir = dir
	defer func() {
		if err != nil {
			s.removeDir()
		}
	}()
	if s.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600); err != nil {
		return err
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s: cannot lock: %w", s.lock.Name(), err)
	}
	path := filepath.Join(dir, libraryName)
	if err := s.lib.write(path); err != nil {
		return err
	}
	if err := mapsExecutable(path); err != nil {
		return fmt.Errorf("%s: files there cannot be mapped executable: %w", parent, err)
	}
	// Independent of the umask; last, so that nobody reaches what is not finished.
	if err := os.Chmod(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711)
}

// mapsExecutable fails where the file may not be mapped executable: file systems mounted noexec, security modules.
func mapsExecutable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	return unix.Munmap(mem)
}

func (s *Session) removeDir() {
	removeSessionDir(s.dir)
	if s.lock != nil {
		s.lock.Close()
		s.lock = nil
	}
}

// removeSessionDir removes the files that we make, and the directory if nothing else is in it.
func removeSessionDir(dir string) {
	for _, name := range []string{"sock", libraryName, "lock"} {
		os.Remove(filepath.Join(dir, name))
	}
	os.Remove(dir)
}

// cleanStale removes what killed sessions of this user left in parent. A session that lives holds a lock on its lock file.
func cleanStale(parent string) {
	d, err := os.Open(parent)
	if err != nil {
		return
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			if strings.HasPrefix(name, dirPrefix) {
				cleanIfStale(filepath.Join(parent, name))
			}
		}
		if err != nil {
			return // io.EOF, or not readable: nothing to clean then
		}
	}
}

func cleanIfStale(dir string) {
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() ||
		time.Since(time.Unix(st.Mtim.Sec, st.Mtim.Nsec)) < staleAfter {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err == nil {
		defer f.Close()
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return
	}
	removeSessionDir(dir)
}
