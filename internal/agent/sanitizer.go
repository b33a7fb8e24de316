package agent

import (
	"bytes"
	"debug/elf"
	"fmt"
	"path/filepath"
	"strings"
)

// sanitizers are the runtimes beside which the agent cannot live (agent/c/sanitizer.c says why, and decides the same for children), by
// the name of their shared library.
var sanitizers = []struct{ library, name, flag string }{
	{"libasan.so", "AddressSanitizer", "address"},
	{"libclang_rt.asan", "AddressSanitizer", "address"},
	{"libhwasan.so", "HWAddressSanitizer", "hwaddress"},
	{"libclang_rt.hwasan", "HWAddressSanitizer", "hwaddress"},
	{"libtsan.so", "ThreadSanitizer", "thread"},
	{"libclang_rt.tsan", "ThreadSanitizer", "thread"},
}

// checkSanitizer refuses a program that carries such a runtime, or gets one by the user's LD_PRELOAD; with an Instrumented if the agent can take its place.
func checkSanitizer(what, file string, env []string) error {
	no := func(name, flag string) *Refusal {
		hint := ""
		if flag == "address" {
			hint = ", or with -static-libasan"
		}
		return &Refusal{ExitNotExecutable, fmt.Sprintf("%s: built with %s, beside whose runtime the agent cannot be loaded; build it without -fsanitize=%s%s", what, name, flag, hint)}
	}
	for _, e := range env {
		list, ok := strings.CutPrefix(e, "LD_PRELOAD=")
		if !ok {
			continue
		}
		for _, path := range strings.FieldsFunc(list, func(r rune) bool { return r == ':' || r == ' ' }) {
			for _, s := range sanitizers {
				if strings.HasPrefix(filepath.Base(path), s.library) {
					return refuse(ExitNotExecutable, "%s: LD_PRELOAD has the runtime of %s (%s), beside which the agent cannot be loaded; take it out", what, s.name, path)
				}
			}
		}
	}
	f, err := elf.Open(file)
	if err != nil {
		return nil // not ours to judge
	}
	defer f.Close()
	libs, _ := f.ImportedLibraries()
	for _, lib := range libs {
		for _, s := range sanitizers {
			if strings.HasPrefix(lib, s.library) {
				return instrumented(what, f, lib, no(s.name, s.flag))
			}
		}
	}
	// Of ThreadSanitizer's static runtime clang's executables export all, gcc's what it interposes; and nobody else interposes setjmp. To read all
	// symbols takes long where there are many.
	const entry, jump, lock = "__tsan_init", "__sigsetjmp", "pthread_mutex_trylock"
	if sec := f.Section(".dynstr"); sec != nil && sec.Type == elf.SHT_STRTAB {
		b, err := sec.Data()
		has := func(name string) bool { return bytes.Contains(b, []byte("\x00"+name+"\x00")) }
		if err != nil || !has(entry) && (!has(jump) || !has(lock)) {
			return nil
		}
	}
	symbols, _ := f.DynamicSymbols()
	exports := map[string]bool{}
	for _, sym := range symbols {
		exports[sym.Name] = exports[sym.Name] || sym.Section != elf.SHN_UNDEF
	}
	if exports[entry] || exports[jump] && exports[lock] {
		return no("ThreadSanitizer", "thread")
	}
	return nil
}
