package agent

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Instrumented is what Resolve answers for a program that was built with -fsanitize=thread and linked with ThreadSanitizer's shared runtime. The agent cannot live beside that; it can take its
// place (internal/agent/c/tsan.c), in a session that tells all accesses (Options.Runtime). Whoever cannot ask for that takes it for the Refusal that it is.
type Instrumented struct {
	Refusal *Refusal
	Runtime string // the runtime's name, as the program asks the dynamic linker for it: libtsan.so.2
}

func (i *Instrumented) Error() string { return i.Refusal.Error() }

// Unwrap gives the Refusal.
func (i *Instrumented) Unwrap() error { return i.Refusal }

// runtimesOwn are beginnings of names that sanitizers' runtimes have, and nobody else.
var runtimesOwn = []string{"__tsan_", "__sanitizer_", "__sancov", "__interceptor_", "Annotate", "WTFAnnotate", "RunningOnValgrind", "ValgrindSlowdown", "ThreadSanitizerQuery"}

// instrumented answers for a program f with that runtime, of which refusal is what is said of others.
func instrumented(what string, f *elf.File, runtime string, refusal *Refusal) error {
	if !strings.HasPrefix(runtime, "libtsan.so.") || len(runtime) > len(libraryName) {
		return refusal
	}
	ours, err := runtimeFunctions()
	if err != nil {
		return refusal
	}
	wants, err := f.DynamicSymbols()
	if err != nil {
		return refusal
	}
	for _, s := range wants {
		own := func(begin string) bool { return strings.HasPrefix(s.Name, begin) }
		if s.Section == elf.SHN_UNDEF && elf.ST_BIND(s.Info) != elf.STB_WEAK && slices.ContainsFunc(runtimesOwn, own) && !slices.Contains(ours, s.Name) {
			return refuse(ExitNotExecutable, "%s: built with ThreadSanitizer, and it calls %s of its runtime, which ripstop does not have; build it without -fsanitize=thread", what, s.Name)
		}
	}
	return &Instrumented{Refusal: refusal, Runtime: runtime}
}

// runtimesSection is where tsan.c has its functions.
const runtimesSection = "rs_tsan"

func isRuntimes(f *elf.File, section elf.SectionIndex) bool {
	return int(section) < len(f.Sections) && f.Sections[section].Name == runtimesSection
}

// runtimeFunctions are the runtime's functions that the agent has.
func runtimeFunctions() (out []string, err error) {
	l, err := openLibrary(true, "")
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(l)
	if err != nil {
		return nil, fmt.Errorf("BUG: the agent's library: %w", err)
	}
	list, err := f.DynamicSymbols()
	for _, s := range list {
		if protected(s.Info, s.Other) && isRuntimes(f, s.Section) {
			out = append(out, s.Name)
		}
	}
	return out, err
}

// rename gives the library the runtime's name, so that the dynamic linker, which has loaded it already, does not look for another one (_dl_map_object in glibc's elf/dl-load.c compares with
// the DT_SONAME of what is there). The program asks for functions without a version then, as the runtime has none, and must not be given old ones (versions.map).
func (l *library) rename(runtime string) error {
	f, err := elf.NewFile(l)
	if err != nil {
		return fmt.Errorf("BUG: the agent's library: %w", err)
	}
	own, err := f.DynValue(elf.DT_SONAME)
	s, err2 := dynamicSymbols(f)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	names, err := f.Sections[s.Link].Data()
	if err != nil || len(own) != 1 || own[0] > uint64(len(names)) || !bytes.HasPrefix(names[own[0]:], []byte(libraryName+"\x00")) || len(runtime) > len(libraryName) {
		return fmt.Errorf("BUG: the agent's library cannot be called %s: %w", runtime, err)
	}
	l.instead = append(l.instead, bytesAt{int64(f.Sections[s.Link].Offset + own[0]), append([]byte(runtime), 0)})
	return l.withoutOld(f, s)
}

// withoutOld takes the values away from symbols of versions that are not the newest, if there is a newer one of the name.
func (l *library) withoutOld(f *elf.File, s *elf.Section) error {
	versions := f.SectionByType(elf.SHT_GNU_VERSYM)
	if versions == nil {
		return errors.New("BUG: the agent's library has no versions")
	}
	index, err := versions.Data()
	list, err2 := f.DynamicSymbols()
	if err := errors.Join(err, err2); err != nil || len(index) < 2*(len(list)+1) {
		return fmt.Errorf("BUG: the versions of the agent's library: %w", err)
	}
	const hidden = 1 << 15                                                                       // VERSYM_HIDDEN
	isOld := func(i int) bool { return binary.LittleEndian.Uint16(index[2*(i+1):])&hidden != 0 } // without the null symbol
	today := map[string]bool{}
	for i, sym := range list {
		today[sym.Name] = today[sym.Name] || !isOld(i)
	}
	for i, sym := range list {
		if isOld(i) && today[sym.Name] {
			l.instead = append(l.instead, bytesAt{int64(s.Offset) + int64((i+1)*elf.Sym64Size+symbolValue), make([]byte, 8)})
		}
	}
	return nil
}
