package x86

import "strings"

// semanticsTable has the operations that Exec and Reverse know, by name.
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
		add("j"+cc, semantics{run: jcc, undo: undoBranch})
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
	{"mov movzx movnti movdiri", move, undoMove},
	{"movsx movsxd", moveSigned, undoMove},
	{"movbe", moveSwapped, nil},
	{"lea", lea, undoLea},
	{"xchg", exchange, undoExchange},
	{"add", add, undoAdd},
	{"adc", addCarry, nil},
	{"sub", subtract, undoSubtract},
	{"sbb", subtractBorrow, nil},
	{"cmp", compare, undoCompare},
	{"inc", increment, undoIncrement},
	{"dec", decrement, undoDecrement},
	{"neg", negate, undoNegate},
	{"not", complement, undoNot},
	{"and", and, nil},
	{"or", or, nil},
	{"xor", xor, undoXor},
	{"test", test, undoTest},
	{"andn", andNot, nil},
	{"xadd", exchangeAdd, undoExchangeAdd},
	{"cmpxchg", compareExchange, nil},
	{"cmpxchg8b cmpxchg16b", compareExchangeTwo, nil},
	{"mul", multiply, nil},
	{"imul", multiplySigned, undoMultiply},
	{"mulx", multiplyNoFlags, nil},
	{"div", divide, nil},
	{"idiv", divideSigned, nil},
	{"adcx", addCarryCF, nil},
	{"adox", addCarryOF, nil},

	{"shl", shiftLeft, undoShiftLeft},
	{"shr", shiftRight, undoShiftRight},
	{"sar", shiftRightSigned, undoShiftRight},
	{"rol", rotateLeft, undoRotateLeft},
	{"ror", rotateRight, undoRotateRight},
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
	{"bswap", byteSwap, undoByteSwap},
	{"blsi", lowestBit, nil},
	{"blsr", lowestBitReset, nil},
	{"blsmsk", lowestBitMask, nil},
	{"bextr", bitField, nil},
	{"bzhi", zeroHigh, nil},
	{"pdep", deposit, nil},
	{"pext", extract, nil},
	{"crc32", crc32c, nil},

	{"cbw cwde cdqe", extendAccumulator, undoExtendAccumulator},
	{"cwd cdq cqo", extendToDX, nil},
	{"lahf", loadFlags, nil},
	{"sahf", storeFlags, nil},
	{"pushf pushfd pushfq", pushFlags, undoPushFlags},
	{"popf popfd popfq", popFlags, undoPopFlags},
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

	{"push", push, undoPush},
	{"pop", pop, undoPop},
	{"leave", leave, undoLeave},
	{"call", call, undoCall},
	{"ret", ret, undoRet},
	{"jmp", jump, undoJump},
	{"jrcxz jecxz", jumpRCX, nil},
	{"loop loope loopne", loop, undoLoop},
	{"syscall", systemCall, undoSystemCall},

	{"movsb movsw movsd movsq", moveString, undoString},
	{"stosb stosw stosd stosq", storeString, undoString},
	{"lodsb lodsw lodsd lodsq", loadString, undoString},
	{"cmpsb cmpsw cmpsd cmpsq", compareString, undoString},
	{"scasb scasw scasd scasq", scanString, undoString},
	{"clzero", zeroLine, nil},

	{"nop endbr64 endbr32 pause lfence mfence sfence fwait serialize prefetch prefetchw prefetchwt1 prefetchnta prefetcht0 prefetcht1 prefetcht2", nothing, nothing},
	{"clflush clflushopt clwb cldemote ptwrite", nothing, nothing},
}

// selectors tell apart the operations that share a function: jcc, setcc and cmovcc by the condition as in the opcode, others by a number of their own.
var selectors = func() map[string]uint8 {
	m := map[string]uint8{"bts": 1, "btr": 2, "btc": 3, "loope": 1, "loopne": 2, "movhps": 1, "movhpd": 1, "vmovhps": 1, "vmovhpd": 1}
	for i, cc := range strings.Fields("o no b ae e ne be a s ns p np l ge le g") {
		m["j"+cc], m["set"+cc], m["cmov"+cc] = uint8(i), uint8(i), uint8(i)
	}
	return m
}()
