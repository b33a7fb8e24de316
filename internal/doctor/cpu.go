package doctor

// cpuid and rdtsc are the instructions of that name.
func cpuid(leaf, sub uint32) (eax, ebx, ecx, edx uint32)
func rdtsc() uint64
