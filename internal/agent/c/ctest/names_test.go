package ctest

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
)

// Names that mean the same as one that the agent exports, or belong to a family that it interposes, and why the agent does not export them.
var notInterposed = map[string]string{
	"glibc's own libraries only, on descriptors that they keep": `__(open|open64|close|read|write|pread64)_nocancel`,
	"without threads, memory or order":                          `pthread_(self|equal|yield|get\w+|set\w+|testcancel|kill_other_threads_np|\w+attr_\w+|mutex_getprioceiling)|thrd_(current|equal|sleep|yield)|tss_[gs]et|__sched_yield|sem_unlink`,
	"seen by the calls that they make or by handlers":           `exit|pthread_atfork|__register_atfork`,
	"sets of signals, texts, stacks: data":                      `sig(add|del|and|or|fill|empty|isempty)set|__sig(add|del)set|(__)?sigismember|sigabbrev_np|sigdescr_np|sigaltstack|sigstack|siggetmask|sigpending`,
	"a stub that fails":                                         `sigreturn`,
	"makes, tells and sets attributes":                          `(mq_(get|set)attr|mq_unlink|mq_notify|msg(get|ctl)|shm(get|ctl|_open|_unlink))`,
	"jumps":                                                     `siglongjmp|__sigsetjmp`,
	"only in binaries of before glibc 2.21":                     `sigvec`,
	"glibc's own libthread only":                                `__libc_sigaction`,
	"tells and sets attributes":                                 `posix_spawn(attr|_file_actions)_\w+|__libc_msg\w+|__pthread_mutexattr_\w+`,
	"of a function that is there only with accesses; binaries of long ago, and glibc's own libraries": `_IO_(fdopen|fgets|getline|fread|fwrite|puts|fputs|v?sprintf|fopen|v?fprintf|printf|vfscanf|sscanf|fflush|fsetpos(64)?)|__(clock_gettime|gettimeofday|nanosleep|fstat64|v?snprintf|asprintf|vfscanf|vsscanf|fseeko64|(libc_)?secure_getenv)`,
	"accesses of its caller by a rarer name: not told":                                                `(str|wcs)to(f32|f64|f32x|f64x|imax|umax|q|uq)|__strsep_g|__wcs(cat|ncpy)_chk`,
	"sends by a descriptor of a process":                                                              `pidfd_send_signal`,
}

// families are those of which the agent is to interpose every function.
var families = regexp.MustCompile(`^(_*pthread_(mutex|rwlock|spin|cond|barrier|once|key|create|join|tryjoin|timedjoin|clockjoin|detach|exit|cancel|kill|sigqueue|sigmask)` +
	`|mtx_|cnd_|thrd_|tss_|call_once$|sem_(init|destroy|open|close|wait|trywait|timedwait|clockwait|post|getvalue|unlink)$|sig|_*(exec|fexec)|wait|_?_?v?_?[fF]ork|posix_spawn|epoll_|mq_|msg|semop|semtimedop|semctl|shm|vmsplice|eventfd|pipe|p?poll$|p?select$)`)

type symbol struct {
	name, version string
	hidden        bool
	value         uint64
}

// defined lists the functions that a library exports.
func defined(t *testing.T, path string) (list []symbol) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range syms {
		kind := elf.ST_TYPE(s.Info)
		if s.Section == elf.SHN_UNDEF || kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC {
			continue
		}
		if int(s.Section) < len(f.Sections) && f.Sections[s.Section].Name == "rs_tsan" { // tsan.c: not libc's, and gone where they are not asked for
			continue
		}
		list = append(list, symbol{s.Name, s.Version, s.HasVersion && s.VersionIndex.IsHidden(), s.Value})
	}
	return list
}

// plain takes off what distinguishes the names of one function: the underscores of before POSIX, 64 bits, checks of buffers, no cancellation.
func plain(name string) string {
	name = strings.TrimPrefix(strings.TrimLeft(name, "_"), "libc_")
	name = strings.TrimPrefix(strings.TrimPrefix(name, "IO_"), "xpg_")
	for _, end := range []string{"_nocancel", "_chk", "_2", "_np"} {
		name = strings.TrimSuffix(name, end)
	}
	return strings.ReplaceAll(name, "64", "")
}

func reason(name string) string {
	for why, pattern := range notInterposed {
		if regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString(name) {
			return why
		}
	}
	return ""
}

// libraryPath is where the compiler finds a shared library.
func libraryPath(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("g++", "-print-file-name="+name).Output()
	if err != nil {
		t.Fatal(err)
	}
	path := strings.TrimSpace(string(out))
	if !filepath.IsAbs(path) {
		t.Fatalf("no %s", name)
	}
	return path
}

// A call by another of its names went past the agent: libraries built without _FORTIFY_SOURCE, with -D_FILE_OFFSET_BITS=64 or long ago use
// names of their own for read, fork, open and others. Whatever libc exports at the address of an interposed function, or by a name that is
// only a form of an interposed one, is interposed too, or is on a list with the reason.
func TestAllNames(t *testing.T) {
	if lib, err := library(); err != nil {
		t.Fatalf("make: %v\n%s", err, lib)
	}
	ours := defined(t, "../../lib/libripstop.so")
	exported, forms := map[string]bool{}, map[string]string{}
	for _, s := range ours {
		exported[s.name] = true
		forms[plain(s.name)] = s.name
	}
	there := map[string][]symbol{}
	for _, lib := range []string{"libc.so.6", "libpthread.so.0", "librt.so.1", "libdl.so.2", "libutil.so.1", "ld-linux-x86-64.so.2", "libstdc++.so.6"} {
		at := map[uint64]string{}
		list := defined(t, libraryPath(t, lib))
		for _, s := range list {
			there[s.name] = append(there[s.name], s)
			if exported[s.name] {
				at[s.value] = s.name
			}
		}
		for _, s := range list {
			if exported[s.name] || reason(s.name) != "" {
				continue
			}
			if same := at[s.value]; same != "" {
				t.Errorf("%s: %s@%s is %s, but not interposed", lib, s.name, s.version, same)
			} else if form := forms[plain(s.name)]; form != "" && strings.HasPrefix(lib, "libc.") {
				t.Errorf("%s: %s@%s is a form of %s, but not interposed", lib, s.name, s.version, form)
			} else if families.MatchString(s.name) && strings.HasPrefix(lib, "libc.") {
				t.Errorf("%s: %s@%s is not interposed", lib, s.name, s.version)
			} else if regexp.MustCompile(`^(_Zn[wa]|_Zd[la]|__cxa_guard_)`).MatchString(s.name) {
				t.Errorf("%s: %s is not interposed", lib, s.name)
			}
		}
	}
	for _, s := range ours {
		// What tests of the patch engine call in their programs (patch.c).
		if len(there[s.name]) == 0 && !strings.HasPrefix(s.name, "ripstop_patch_") && !strings.HasPrefix(s.name, "__isoc23_") { // from glibc 2.38 on
			t.Errorf("the agent exports %s, which no library does natively", s.name)
		}
	}
	// Where versions of a function differ, and where there is none for new programs, the agent has just those.
	delete(exported, "lio_listio") // before glibc 2.4 there was a signal for each request, too
	delete(exported, "lio_listio64")
	delete(exported, "memcpy") // ours is memmove, which is right for both of libc's
	for name := range exported {
		values, known := map[uint64]bool{}, true
		for _, s := range there[name] {
			values[s.value] = true
			known = known && s.hidden
		}
		if len(values) > 1 || known && len(there[name]) > 0 {
			if want, got := versions(there[name]), versions(of(ours, name)); want != got {
				t.Errorf("%s: libc has %s, the agent %s", name, want, got)
			}
		}
	}
}

func of(list []symbol, name string) (some []symbol) {
	for _, s := range list {
		if s.name == name {
			some = append(some, s)
		}
	}
	return some
}

// versions lists them as nm does: @@ is the one for new programs. Versions at one address count once, the newest.
func versions(list []symbol) string {
	var out []string
	for _, s := range list {
		if s.hidden {
			out = append(out, "@"+s.version)
		} else {
			out = append(out, "@@"+s.version)
		}
	}
	sort.Strings(out)
	return strings.Join(out, " ")
}
