package x86

import "strings"

// semanticsTable has the operations that Exec and Reverse know, by name. Those of vectors are in vectorTable.
var semanticsTable = func() map[string]*semantics {
	t := map[string]*semantics{}
	add := func(names string, s semantics) {
		for _, n := range strings.Fields(names) {
			if t[n] != nil {
				panic("BUG: x86: two semantics of " + n)
			}
			t[n] = &s
		}
	}
	for _, r := range integerSemantics {
		add(r.names, semantics{run: r.run, undo: r.undo})
	}
	for _, r := range vectorSemantics {
		add(r.names, semantics{run: r.run, undo: r.undo, vector: true})
	}
	for cc := range conditions {
		add("j"+cc, semantics{run: jcc})
		add("set"+cc, semantics{run: setcc})
		add("cmov"+cc, semantics{run: cmovcc})
	}
	return t
}()

// A semanticsRow gives operations their functions.
type semanticsRow struct {
	names     string
	run, undo func(*Emulator, *Op)
}

var integerSemantics = []semanticsRow{
	{"mov movzx movnti movdiri", move, nil},
	{"movsx movsxd", moveSigned, nil},
	{"movbe", moveSwapped, nil},
	{"lea", lea, nil},
	{"xchg", exchange, nil},
	{"add", add, nil},
	{"adc", addCarry, nil},
	{"sub", subtract, nil},
	{"sbb", subtractBorrow, nil},
	{"cmp", compare, nil},
	{"inc", increment, nil},
	{"dec", decrement, nil},
	{"neg", negate, nil},
	{"not", complement, nil},
	{"and", and, nil},
	{"or", or, nil},
	{"xor", xor, nil},
	{"test", test, nil},
	{"andn", andNot, nil},
	{"xadd", exchangeAdd, nil},
	{"cmpxchg", compareExchange, nil},
	{"cmpxchg8b cmpxchg16b", compareExchangeTwo, nil},
	{"mul", multiply, nil},
	{"imul", multiplySigned, nil},
	{"mulx", multiplyNoFlags, nil},
	{"div", divide, nil},
	{"idiv", divideSigned, nil},
	{"adcx", addCarryCF, nil},
	{"adox", addCarryOF, nil},

	{"shl", shiftLeft, nil},
	{"shr", shiftRight, nil},
	{"sar", shiftRightSigned, nil},
	{"rol", rotateLeft, nil},
	{"ror", rotateRight, nil},
	{"rcl", rotateLeftCarry, nil},
	{"rcr", rotateRightCarry, nil},
	{"shld", shiftLeftDouble, nil},
	{"shrd", shiftRightDouble, nil},
	{"shlx", shiftLeftNoFlags, nil},
	{"shrx", shiftRightNoFlags, nil},
	{"sarx", shiftRightSignedNoFlags, nil},
	{"rorx", rotateRightNoFlags, nil},
	{"bt bts btr btc", testBit, nil},
	{"bsf", bitScanForward, nil},
	{"bsr", bitScanReverse, nil},
	{"tzcnt", trailingZeros, nil},
	{"lzcnt", leadingZeros, nil},
	{"popcnt", countBits, nil},
	{"bswap", byteSwap, nil},
	{"blsi", lowestBit, nil},
	{"blsr", lowestBitReset, nil},
	{"blsmsk", lowestBitMask, nil},
	{"bextr", bitField, nil},
	{"bzhi", zeroHigh, nil},
	{"pdep", deposit, nil},
	{"pext", extract, nil},
	{"crc32", crc32c, nil},

	{"cbw cwde cdqe", extendAccumulator, nil},
	{"cwd cdq cqo", extendToDX, nil},
	{"lahf", loadFlags, nil},
	{"sahf", storeFlags, nil},
	{"pushf pushfd pushfq", pushFlags, nil},
	{"popf popfd popfq", popFlags, nil},
	{"clc", setOne(CF, false), nil},
	{"stc", setOne(CF, true), nil},
	{"cmc", complementCarry, nil},
	{"cld", setOne(DF, false), nil},
	{"std", setOne(DF, true), nil},
	{"xlat", translateByte, nil},
	{"rdfsbase", readFS, nil},
	{"rdgsbase", readGS, nil},
	{"wrfsbase", writeFS, nil},
	{"wrgsbase", writeGS, nil},

	{"push", push, nil},
	{"pop", pop, nil},
	{"leave", leave, nil},
	{"call", call, nil},
	{"ret", ret, nil},
	{"jmp", jump, nil},
	{"jrcxz jecxz", jumpRCX, nil},
	{"loop loope loopne", loop, nil},
	{"syscall", systemCall, nil},

	{"movsb movsw movsd movsq", moveString, nil},
	{"stosb stosw stosd stosq", storeString, nil},
	{"lodsb lodsw lodsd lodsq", loadString, nil},
	{"cmpsb cmpsw cmpsd cmpsq", compareString, nil},
	{"scasb scasw scasd scasq", scanString, nil},
	{"clzero", zeroLine, nil},

	{"nop endbr64 endbr32 pause lfence mfence sfence fwait serialize prefetch prefetchw prefetchwt1 prefetchnta prefetcht0 prefetcht1 prefetcht2", nothing, nil},
	{"clflush clflushopt clwb cldemote ptwrite", nothing, nil},
}

// conditionOf gives the condition of jcc, setcc and cmovcc as in the opcode.
func conditionOf(op string) uint8 {
	for _, p := range []string{"j", "set", "cmov"} {
		if cc, ok := strings.CutPrefix(op, p); ok {
			for i, name := range strings.Fields("o no b ae e ne be a s ns p np l ge le g") {
				if cc == name {
					return uint8(i)
				}
			}
		}
	}
	return map[string]uint8{"bts": 1, "btr": 2, "btc": 3, "loope": 1, "loopne": 2}[op]
}
