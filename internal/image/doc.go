// Package image reads ELF files: what kind of program a file is, its sections and segments, its symbols, and the functions, lines and
// inlined calls that its DWARF describes, from the file itself or from its separate debug files. It turns a link-time address into
// names. Unwinding does not belong here, nor does anything about running processes: an address comes in as a link-time address.
//
// Every byte of a file is hostile. Sizes and counts are checked against the bytes that are really there before anything is
// allocated, references are followed to a fixed depth, and a file that shrinks while it is mapped gives an error. This is also why
// the DWARF reader is our own: debug/dwarf allocates by counts that the file states, which ends the process on a crafted line table.
package image
