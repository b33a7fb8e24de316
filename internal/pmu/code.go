package pmu

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/tracee"
)

// CodeOf gives the executable segments of an ELF file.
func CodeOf(path string) (code []Range, err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Filesz > 0 {
			code = append(code, Range{path, p.Off, p.Filesz})
		}
	}
	if len(code) == 0 {
		return nil, fmt.Errorf("%s: it has no code", path)
	}
	return code, nil
}

// librarySearch are the directories in which the dynamic linker of Debian and its kin looks, behind those that the program and its environment name (ld.so(8)).
var librarySearch = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"}

// CodeFor gives the code of files that a program which is yet to be started is made of: of main, which stands for exe, and of libraries by their base names.
func CodeFor(exe, main string, names, environ []string) (code []Range, err error) {
	var dirs []string
	for _, e := range environ {
		if list, ok := strings.CutPrefix(e, "LD_LIBRARY_PATH="); ok {
			dirs = append(dirs, filepath.SplitList(list)...)
		}
	}
	if f, err := elf.Open(exe); err == nil {
		for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
			lists, _ := f.DynString(tag)
			for _, list := range lists {
				list = strings.NewReplacer("${ORIGIN}", filepath.Dir(exe), "$ORIGIN", filepath.Dir(exe)).Replace(list)
				dirs = append(dirs, filepath.SplitList(list)...)
			}
		}
		f.Close()
	}
	dirs = append(dirs, librarySearch...)
	for _, name := range names {
		path := exe
		if name != main && name != filepath.Base(exe) {
			at := slices.IndexFunc(dirs, func(d string) bool {
				_, err := os.Stat(filepath.Join(d, name))
				return err == nil
			})
			if at < 0 {
				return nil, fmt.Errorf("--filter: there is no %s where the program's libraries are looked for (%s)", name, strings.Join(dirs, ", "))
			}
			path = filepath.Join(dirs[at], name)
		}
		more, err := CodeOf(path)
		if err != nil {
			return nil, fmt.Errorf("--filter: %w", err)
		}
		code = append(code, more...)
	}
	return code, nil
}

// CodeIn gives the code of files that a process has mapped: of main, which stands for what it executes, and of others by their base names.
func CodeIn(pid int, main string, names []string) (code []Range, err error) {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return nil, err
	}
	maps, err := tracee.Maps(pid)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		path := ""
		for _, m := range maps {
			if m.Exec && (m.Path == exe && name == main || filepath.Base(m.Path) == name) {
				path = m.Path
			}
		}
		if path == "" {
			return nil, fmt.Errorf("--filter: process %d has no code of %s mapped", pid, name)
		}
		more, err := CodeOf(path)
		if err != nil {
			return nil, fmt.Errorf("--filter: %w", err)
		}
		code = append(code, more...)
	}
	return code, nil
}

// dumpVDSO writes the code of our own vdso, which is everybody's.
func dumpVDSO(dir string) error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(maps), "\n") {
		if !strings.HasSuffix(line, "[vdso]") {
			continue
		}
		var lo, hi int64
		if _, err := fmt.Sscanf(line, "%x-%x", &lo, &hi); err != nil {
			return err
		}
		mem, err := os.Open("/proc/self/mem")
		if err != nil {
			return err
		}
		defer mem.Close()
		b := make([]byte, hi-lo)
		if _, err := mem.ReadAt(b, lo); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, sample.VDSOFile), b, 0o666)
	}
	return errors.New("there is no [vdso]")
}
