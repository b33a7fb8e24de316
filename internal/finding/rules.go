package finding

// The rules. Their ids are stable: they stand in SARIF files, baselines and suppressions of users. A rule may be added, its words may
// change; an id is never reused for something else.
const (
	RuleDeadlock        Rule = "deadlock"
	RuleSelfDeadlock    Rule = "self-deadlock"
	RuleForkDeadlock    Rule = "deadlock-after-fork"
	RuleHang            Rule = "hang"
	RuleInversion       Rule = "lock-order-inversion"
	RuleUnlockNotOwner  Rule = "unlock-not-owner"
	RuleUnlockNotLocked Rule = "unlock-not-locked"
	RuleRwlockUnlock    Rule = "rwlock-unlock-not-held"
	RuleDestroyLocked   Rule = "destroy-locked"
	RuleDestroyWaited   Rule = "destroy-waited"
	RuleUseAfterDestroy Rule = "use-after-destroy"
	RuleUseBeforeInit   Rule = "use-before-init"
	RuleReinitLocked    Rule = "reinit-locked"
	RuleFreeLocked      Rule = "free-locked"
	RuleRecursion       Rule = "recursion-overflow"
	RuleOwnerDied       Rule = "owner-died"
	RuleCondTwoMutexes  Rule = "cond-two-mutexes"
	RuleCondUnlocked    Rule = "cond-wait-unlocked"
	RuleBarrierBadCount Rule = "barrier-bad-count"
	RuleBarrierInUse    Rule = "barrier-destroy-in-use"
	RuleSemBadCount     Rule = "sem-bad-count"
	RuleExitHoldingLock Rule = "exit-holding-lock"
	RuleThreadLeak      Rule = "thread-leak"
	RuleDoubleJoin      Rule = "double-join"
	RuleJoinDetached    Rule = "join-detached"
	RuleJoinSelf        Rule = "join-self"
	RuleDoubleDetach    Rule = "double-detach"
	RuleInvalidFree     Rule = "invalid-free"
	RuleDoubleFree      Rule = "double-free"
	RuleDataRace        Rule = "data-race"
	RuleDataRaceMov     Rule = "data-race-mov"
	RuleUseAfterFree    Rule = "use-after-free-access"
	RuleHeapOverflow    Rule = "heap-overflow"
	RuleHeapUnderflow   Rule = "heap-underflow"
	RuleFreedWrite      Rule = "use-after-free-write"
	RuleCrash           Rule = "crash"
)

// Rules is the table of all rules, in the order in which help lists them.
var Rules = []RuleInfo{
	{RuleDeadlock, ClassDeadlock, "deadlock",
		"Threads wait for each other in a circle (for locks, for the end of a thread, for a barrier to fill, for an initialiser to finish), or for a lock whose holder has ended. None of them can go on, now or ever; threads that come to wait for what they hold stop as well. Each thread of the circle is shown with what it holds, where it took that, and what it waits for. Let all code paths take these locks in one order, take them together (std::scoped_lock, or trylock and back off), or release the first before waiting for the second.", "error"},
	{RuleSelfDeadlock, ClassDeadlock, "deadlock of a thread with itself",
		"A thread waits for something that it holds itself: it locked a normal mutex or a spin lock twice, took a rwlock for writing that it holds for reading, or entered a pthread_once or static initialiser from within that very initialiser. It waits forever. Usually a function that takes the lock calls another that takes it too: split off an inner function that expects the lock to be held, or make the mutex recursive if that is really meant.", "error"},
	{RuleForkDeadlock, ClassDeadlock, "deadlock on a lock that was held during fork",
		"Another thread of the parent held this lock at the moment of fork. The child has a copy of the locked lock but not the thread that would unlock it, so waiting for it never ends. Between fork and exec a child of a multithreaded program may only call async-signal-safe functions (no malloc of your own, no logging, no std::mutex). Use posix_spawn, fork before threads are started, or take the lock in a pthread_atfork handler and release it in parent and child.", "error"},
	{RuleHang, ClassDeadlock, "hang (every thread waits and none is left to wake them)",
		"Every thread of the process waits without a time limit, for a condition variable, a semaphore, a barrier, a futex (std::latch, std::future, a Mutex of Rust's) or the end of another waiting thread, and no signal handler or other process could wake one of them. Often a wake-up was lost: the condition was signalled before the waiter began to wait and the waiter did not test its predicate under the mutex first, a path returns without signalling, or signal woke one thread where broadcast was needed.", "error"},
	{RuleInversion, ClassDeadlock, "lock-order-inversion (potential deadlock)",
		"Different threads took the same locks in different orders: one holds the first and takes the second, another holds the second and takes the first (or a longer circle). This time they did not meet; under another schedule each waits for the other forever. No common lock is held around both and no thread creation or join separates them. Take the locks in one order everywhere (for locks of the same kind, by address), or together with std::scoped_lock, or use trylock and back off.", "warning"},

	{RuleUnlockNotOwner, ClassMutex, "unlock of a mutex by a thread that does not hold it",
		"A thread unlocked a mutex that another thread had locked. For a normal mutex that is undefined: it is released under the feet of its owner, and two threads are in the critical section. If one thread is to wait until another lets it go, use a semaphore or a condition variable.", "error"},
	{RuleUnlockNotLocked, ClassMutex, "unlock of a lock that is not locked",
		"A lock was unlocked that nobody held. Undefined for a normal mutex and a spin lock: glibc's may be left in a state in which two threads get in. Usually an error path unlocks twice, or unlocks what it did not lock.", "error"},
	{RuleRwlockUnlock, ClassMutex, "unlock of a rwlock by a thread that does not hold it",
		"A thread called pthread_rwlock_unlock on a lock that it holds neither for reading nor for writing. That takes away another thread's hold or corrupts the count of readers. Every unlock must be by the thread that locked, once for each lock.", "error"},
	{RuleDestroyLocked, ClassMutex, "destroy of a locked lock",
		"A lock was destroyed while a thread held it. Undefined; the holder then unlocks memory that may serve something else already. Make sure that every user is done (join them) before destroying.", "error"},
	{RuleDestroyWaited, ClassMutex, "destroy of an object that threads wait for",
		"A condition variable, semaphore or lock was destroyed while threads waited on it. They may wait forever or touch memory that is gone. Wake all waiters and make sure that they have left before destroying.", "error"},
	{RuleUseAfterDestroy, ClassMutex, "use of a destroyed synchronisation object",
		"An object was used after it was destroyed and before it was initialised again. Destroy it only after its last user is done; a common cause is a global's destructor running at exit while other threads go on.", "error"},
	{RuleUseBeforeInit, ClassMutex, "use of a synchronisation object that was never initialised",
		"The bytes of the object cannot be those of an initialised one: it was neither initialised by its function nor by its static initialiser. It may seem to work with some garbage and block or crash with other. Initialise it before the first thread can reach it.", "error"},
	{RuleReinitLocked, ClassMutex, "initialisation of a lock that is in use",
		"A lock was initialised while a thread held it. The hold is forgotten, so that a second thread gets in and the holder's unlock hits an unlocked lock. Initialise once, before use (pthread_once, static initialisers).", "error"},
	{RuleFreeLocked, ClassMutex, "free of memory that holds a locked lock",
		"A block of memory was freed while a lock in it was held. The holder's unlock will write to freed memory, and waiters never wake. Release the lock before freeing, and make sure that no other thread can still reach it (a reference count, or a lock that lives outside of the object).", "error"},
	{RuleRecursion, ClassMutex, "recursive lock taken too often",
		"A recursive mutex or a rwlock held for reading was locked more often than its counter can count (EAGAIN). Some path locks without unlocking.", "error"},
	{RuleOwnerDied, ClassMutex, "robust mutex left unusable by a dead owner",
		"The owner of a robust mutex died, and the thread that got it next (EOWNERDEAD) unlocked it without pthread_mutex_consistent: from then on every lock fails with ENOTRECOVERABLE. Repair the protected data and call pthread_mutex_consistent before unlocking.", "error"},
	{RuleCondTwoMutexes, ClassMutex, "condition variable used with two mutexes at once",
		"Threads wait on one condition variable with different mutexes at the same time. Undefined: nothing orders the test of the predicate with the signal, and wake-ups are lost. Use one mutex for one condition variable.", "error"},
	{RuleCondUnlocked, ClassMutex, "wait on a condition variable without holding the mutex",
		"pthread_cond_wait was called with a mutex that the caller does not hold. The wait unlocks it, which is undefined, and a signal between the test of the predicate and the wait is lost. Lock the mutex, test the predicate in a loop, wait.", "error"},
	{RuleBarrierBadCount, ClassMutex, "barrier with an impossible count",
		"A barrier was initialised for 0 threads, or for more than the implementation allows; the call fails, and a wait on it is undefined. Check the count and the result of pthread_barrier_init.", "error"},
	{RuleBarrierInUse, ClassMutex, "destroy of a barrier in use",
		"A barrier was destroyed (or initialised again) while threads waited at it or were still leaving. Join the threads, or meet at a second barrier, before destroying the first.", "error"},
	{RuleSemBadCount, ClassMutex, "semaphore with an impossible count",
		"A semaphore was initialised with, or posted beyond, SEM_VALUE_MAX: the call fails (EINVAL, EOVERFLOW) and the post is lost. Look for posts without waits, and for negative numbers passed as unsigned.", "error"},

	{RuleExitHoldingLock, ClassThread, "thread ended while holding a lock",
		"A thread returned, called pthread_exit or was cancelled while it held a lock. Nobody can release it any more: whoever asks for it waits forever. Release on every path (RAII guards in C++, pthread_cleanup_push where threads are cancelled), or use a robust mutex if owners may die.", "error"},
	{RuleThreadLeak, ClassThread, "thread leak (ended but neither joined nor detached)",
		"A joinable thread ended, and nobody joined or detached it before the process ended normally. Its stack and its control block stay allocated: a program that goes on creating such threads runs out of memory or threads. Join it, or create it detached.", "warning"},
	{RuleDoubleJoin, ClassThread, "join of a thread that was joined already",
		"A thread was joined twice, or by two threads at once. After the first join the handle is dead, its memory may belong to a new thread, and using it is undefined. Let one owner join, once.", "error"},
	{RuleJoinDetached, ClassThread, "join of a detached thread",
		"A detached thread was joined. Its handle is no longer valid once it ends; the join fails or reads freed memory. Decide for each thread: joined by one owner, or detached.", "error"},
	{RuleJoinSelf, ClassThread, "thread joins itself",
		"A thread called pthread_join on itself; the call fails with EDEADLK (or would wait forever). Usually a cleanup function runs on the very thread that it means to end.", "error"},
	{RuleDoubleDetach, ClassThread, "detach of a thread that was detached or joined already",
		"A thread was detached twice, or after it was joined. The handle may belong to another thread by then. Detach once, right after creation, or create it detached.", "error"},

	{RuleInvalidFree, ClassHeap, "invalid free",
		"An address was freed that no allocation returned: inside of a block, on a stack, global, or from another allocator. The heap is damaged or the program aborts. Free exactly what malloc returned.", "error"},
	{RuleDoubleFree, ClassHeap, "double free",
		"A block was freed twice. In between it may have been given to someone else, who then loses it. Find out who owns the block; set the pointer to NULL when it is freed; in threads, make sure that two of them do not race to the same cleanup.", "error"},
	{RuleHeapOverflow, ClassHeap, "write behind the end of a heap block (overflow)",
		"Bytes behind a block of the heap, which belong to nobody, have been overwritten. Natively there lies the allocator's own data or another block. 'ripstop guard' lays known bytes behind each block and looks at them when the block is freed, when it is reallocated, and when the process ends: the finding shows the block with the stack of its allocation, which bytes are wrong, and when that was noticed; who wrote them is shown only where it is known. Look at what computes the length of that allocation, and at what fills it: an index that is one too large, room for a terminating NUL, a length in elements taken for one in bytes.", "error"},
	{RuleHeapUnderflow, ClassHeap, "write in front of a heap block (underflow)",
		"Bytes in front of a block of the heap have been overwritten, which belong to nobody; those next to the end of the block before it are as they were. So this is rather an index or pointer below the block's beginning than one far beyond the other's end. Both blocks are shown with the stacks of their allocations.", "error"},
	{RuleFreedWrite, ClassHeap, "write to freed memory",
		"A block of the heap was written to after it was freed. 'ripstop guard' keeps freed blocks back for a while, filled with known bytes, and looks at them before they are used again and when the process ends. The finding shows where the block was allocated and where it was freed. Find out who still has a pointer to it: all that use a block must be done, and known to be done, before it is freed.", "error"},

	{RuleCrash, ClassCrash, "crash",
		"The process is ended by a signal of its own making: an access to memory that is not there (SIGSEGV, SIGBUS), an impossible instruction or arithmetic (SIGILL, SIGFPE), or abort(), as a failed assertion and an uncaught C++ exception call it (SIGABRT). The stack is that of the thread that did it; what made the value wrong is often elsewhere. Programs that handle the signal themselves, and stack overflows, are not told. The process then dies as it would have, with the same core dump.", "error"},

	{RuleDataRace, ClassRace, "data race",
		"Two threads accessed the same bytes, at least one of them wrote, not both accesses were atomic, and nothing ordered one before the other: no lock that both held, no join, signal, message or atomic between them. In C, C++ and Rust that is undefined behaviour; what is read may be old, new or torn, and the compiler may have assumed that it cannot happen. Take one lock around both accesses, or make the location an atomic. A free of a block that another thread's access is not ordered with is told in the same way: wait for that thread first. So is a close of a descriptor that another thread uses: its number may be given to another file before the other is done.", "error"},
	{RuleDataRaceMov, ClassRace, "data race, unless the location is an atomic in the source",
		"A data race of which every part is a plain mov of 1, 2, 4 or 8 aligned bytes, or that such movs would order if they were atomics. Compilers make the same instructions of C11 and C++ atomics with relaxed, acquire or release order, and of ordinary variables, volatile ones included; only the source tells which it is. If it is an ordinary variable, make it an atomic or take a lock. If it is an atomic already, nothing is wrong: suppress it, or leave out the whole class with --mov-atomics=hide.", "warning"},
	{RuleUseAfterFree, ClassHeap, "access to freed memory",
		"A thread read or wrote a block of the heap after it was freed. What it reads is whatever the allocator or the block's next owner put there; what it writes damages that. Find out who owns the block: all that use it must be done, and known to be done (joined, reference count at zero), before it is freed.", "error"},
}

// RuleOf is the table's row for rule.
func RuleOf(rule Rule) (RuleInfo, bool) {
	for i := range Rules {
		if Rules[i].Rule == rule {
			return Rules[i], true
		}
	}
	return RuleInfo{}, false
}

// Kinds of objects: how an Object.Kind reads and what its ID begins with. The key is the word of wire's enum Object.
var kinds = map[string]struct{ words, prefix string }{
	"mutex": {"mutex", "M"}, "rwlock": {"rwlock", "RW"}, "spin": {"spin lock", "SP"}, "cond": {"condition variable", "C"},
	"barrier": {"barrier", "B"}, "sem": {"semaphore", "S"}, "once": {"once control", "O"}, "guard": {"guard of a static variable", "G"},
	"thread": {"thread", "T"}, "key": {"thread-specific key", "K"}, "futex": {"futex", "F"}, "fd": {"file descriptor", "FD"},
	"heap": {"heap block", "H"}, "location": {"location", "L"},
}

// KindWords is what an object whose kind is called word in wire's enum Object is called in a report: "rwlock", "spin lock".
func KindWords(word string) string {
	if k, ok := kinds[word]; ok {
		return k.words
	}
	return "object"
}

// KindPrefix is what the ID of such an object begins with: M for M1, RW for RW2.
func KindPrefix(word string) string {
	if k, ok := kinds[word]; ok {
		return k.prefix
	}
	return "X"
}
