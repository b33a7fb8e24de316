package guard

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/syscalls"
)

// Every number of the kernel's table has exactly one row, and every row a reason or nothing to explain.
func TestComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rows() {
		c := syscalls.Named(r.Name)
		if c == nil || seen[r.Name] {
			t.Errorf("%s: no call of that name, or twice", r.Name)
			continue
		}
		seen[r.Name] = true
		if r.Class >= Classes || r.Why == "" && len(r.Rules) == 0 {
			t.Errorf("%s: class %d, no reason", r.Name, r.Class)
		}
		for _, u := range r.Rules {
			if int(u.Arg) >= len(c.Args) || u.Test >= Tests || u.Class >= Classes || u.Test == Masked && u.Value&^u.Mask != 0 || u.Test == AnyBit && u.Mask == 0 {
				t.Errorf("%s: %+v", r.Name, u)
			}
			if u.Test >= File && c.Args[u.Arg].Kind != syscalls.FD {
				t.Errorf("%s: argument %d is no descriptor", r.Name, u.Arg)
			}
		}
	}
	for _, c := range syscalls.All() {
		if !seen[c.Name] {
			t.Errorf("%s (%d) has no row", c.Name, c.Number)
		}
		if c.Number >= Numbers {
			t.Errorf("%s is %d: the agent's table is too short", c.Name, c.Number)
		}
	}
}

// What has an order is given back in a re-execution, not made: a call that is made again has its own. Reads are both, by their descriptor.
func TestOrders(t *testing.T) {
	rows := map[string]Row{}
	for _, r := range Rows() {
		rows[r.Name] = r
	}
	for _, o := range orders {
		for _, name := range strings.Fields(o.names) {
			r, ok := rows[name]
			recorded := r.Class == Recordable || slices.ContainsFunc(r.Rules, func(u Rule) bool { return u.Class == Recordable })
			if c := syscalls.Named(name); !ok || !recorded || OrderOf(name) != o.order || o.order&NotFiles != 0 && (len(c.Args) == 0 || c.Args[0].Kind != syscalls.FD) {
				t.Errorf("%s: %+v, order %d", name, r, OrderOf(name))
			}
		}
	}
	if OrderOf("getpid") != 0 {
		t.Error("getpid wakes nobody")
	}
}

func TestOf(t *testing.T) {
	file := func(_ int32, want Test) bool { return want == File }
	other := func(int32, Test) bool { return false }
	writer := func(_ int32, want Test) bool { return want != Reader }
	reader := func(_ int32, want Test) bool { return want != Writer }
	for _, c := range []struct {
		n    int
		args [6]uint64
		fd   Descriptor
		want Class
	}{
		{unix.SYS_GETPID, [6]uint64{}, other, Repeatable}, {unix.SYS_READ, [6]uint64{3}, file, Revocable}, {unix.SYS_READ, [6]uint64{3}, other, Recordable},
		{unix.SYS_CLOSE, [6]uint64{3}, file, Deferrable}, {unix.SYS_CLOSE, [6]uint64{3}, writer, Recordable}, {unix.SYS_CLOSE, [6]uint64{3}, other, Recordable},
		{unix.SYS_MMAP, [6]uint64{0, 4096, 3, unix.MAP_PRIVATE | unix.MAP_ANON}, other, Repeatable}, {unix.SYS_MMAP, [6]uint64{0, 4096, 3, unix.MAP_SHARED}, other, Irrevocable},
		{unix.SYS_MMAP, [6]uint64{0, 4096, 1, unix.MAP_SHARED}, file, Irrevocable}, {unix.SYS_MMAP, [6]uint64{0, 4096, 1, unix.MAP_SHARED}, reader, Repeatable}, {unix.SYS_MMAP, [6]uint64{0, 4096, 3, unix.MAP_PRIVATE}, file, Repeatable},
		{unix.SYS_MMAP, [6]uint64{0, 4096, 1, unix.MAP_SHARED | unix.MAP_ANON}, reader, Irrevocable},
		{unix.SYS_MMAP, [6]uint64{0, 4096, 3, unix.MAP_SHARED_VALIDATE}, other, Irrevocable}, {unix.SYS_FORK, [6]uint64{}, other, Irrevocable},
		{unix.SYS_FCNTL, [6]uint64{3, unix.F_DUPFD}, other, Recordable}, {unix.SYS_FCNTL, [6]uint64{3, unix.F_SETLEASE}, other, Irrevocable},
		// The kernel does not look at what a caller left in the upper half.
		{unix.SYS_FCNTL, [6]uint64{3, 7<<32 | unix.F_GETFL}, other, Recordable},
		{500, [6]uint64{}, other, Irrevocable}, {-1, [6]uint64{}, other, Irrevocable}, {1 << 30, [6]uint64{}, other, Irrevocable},
	} {
		if got := Of(c.n, c.args, c.fd); got != c.want {
			t.Errorf("%s %#x is %v, want %v", syscalls.Name(c.n), c.args, got, c.want)
		}
	}
}

func TestHeaderIsCurrent(t *testing.T) {
	have, err := os.ReadFile("../agent/c/zz_guardclass.h")
	if err != nil || !bytes.Equal(have, Header()) {
		t.Errorf("stale (%v): go generate ./internal/guard", err)
	}
}

// writesNothing are calls with pointers that give their results, and nothing else.
var writesNothing = strings.Fields("write pwrite64 writev pwritev pwritev2 open openat creat openat2 access faccessat faccessat2 lseek memfd_create signalfd signalfd4 mq_open connect bind sendto sendmsg setsockopt " +
	"epoll_ctl inotify_add_watch vmsplice truncate unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir link linkat symlink symlinkat mknod mknodat chmod fchmodat fchmodat2 chown lchown fchownat " +
	"utime utimes utimensat futimesat setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr chdir rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal rt_sigsuspend setrlimit semop semtimedop " +
	"msgsnd msgctl mq_unlink mq_timedsend mq_notify clone landlock_create_ruleset")

// What recordable calls write to memory is in kernel.c's table: whoever takes a pointer writes what stands there, or is listed above as writing nothing.
func TestWrittenMemoryIsKnown(t *testing.T) {
	source, err := os.ReadFile("../agent/c/kernel.c")
	if err != nil {
		t.Fatal(err)
	}
	writes := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\t\[SYS_(\w+)\] = \{(.*)\}`).FindAllSubmatch(source, -1) {
		writes[string(m[1])] = regexp.MustCompile(`OUT|WRITES|BOTH|RAW|SHORT|ADDRESS|FDS|POLLED`).Match(m[2])
	}
	if len(writes) < 80 {
		t.Fatalf("only %d rows read from kernel.c", len(writes))
	}
	for _, r := range Rows() {
		recorded := r.Class == Recordable || r.Class == Revocable
		for _, u := range r.Rules {
			recorded = recorded || u.Class == Recordable || u.Class == Revocable
		}
		pointer := slices.ContainsFunc(syscalls.Named(r.Name).Args, func(a syscalls.Arg) bool { return a.Kind == syscalls.Pointer || a.Kind == syscalls.String })
		none := slices.Contains(writesNothing, r.Name)
		switch {
		case recorded && pointer && !none && !writes[r.Name]:
			t.Errorf("%s: what does it write? %v", r.Name, fmt.Sprint(syscalls.Named(r.Name).Args))
		case none && writes[r.Name]:
			t.Errorf("%s writes nothing, says the test, but kernel.c does not", r.Name)
		}
	}
	for _, name := range []string{"ioctl", "fcntl", "prctl"} { // whose pointers are numbers
		if !writes[name] {
			t.Errorf("%s: what does it write?", name)
		}
	}
}
