/* key.c: keys of thread-specific data. [all] only.
 *
 * A destructor is wrapped by a stub that stands for it for good, so that a destructor called while its key is being deleted is still the
 * right one. No interface shows the program the address. */
#include "opened.h"
#include "proc.h"

#define STUBS 1024
#define STUB_BYTES 16
#define NO_KEY UINT32_MAX

struct entry {
	uintptr_t fn;  /* set once */
	uint32_t used; /* 1: a key has it */
	uint32_t key;
};
static struct entry entries[STUBS];

__asm__(".text\n.p2align 4\nrs_key_stubs:\n"
	".set i, 0\n.rept 1024\n.p2align 4\n	movl $i, %esi\n	jmp rs_key_destructor\n.set i, i+1\n.endr\n");
extern char rs_key_stubs[] __attribute__((visibility("hidden")));
void rs_key_destructor(void *value, uint32_t stub) __attribute__((visibility("hidden")));

void rs_key_destructor(void *value, uint32_t stub)
{
	struct rs_thread *t = rs_self();
	if (t)
		RS_EMIT(t, KEY_DESTRUCTOR, key_destructor, __atomic_load_n(&entries[stub].key, __ATOMIC_RELAXED), (uintptr_t)value);
	((void (*)(void *))entries[stub].fn)(value);
}

/* A stub that no key uses, of this destructor or of none yet; STUBS if there is none. */
static unsigned take(uintptr_t fn)
{
	for (unsigned i = 0; i < STUBS; i++) {
		uintptr_t seen = __atomic_load_n(&entries[i].fn, __ATOMIC_ACQUIRE);
		if (seen == 0)
			__atomic_compare_exchange_n(&entries[i].fn, &seen, fn, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
		if ((seen == 0 || seen == fn) && !__atomic_exchange_n(&entries[i].used, 1, __ATOMIC_ACQUIRE))
			return i;
	}
	return STUBS;
}

static void give(unsigned i)
{
	__atomic_store_n(&entries[i].key, NO_KEY, __ATOMIC_RELAXED);
	__atomic_store_n(&entries[i].used, 0, __ATOMIC_RELEASE);
}

static void deleted(uint32_t key)
{
	for (unsigned i = 0; i < STUBS && __atomic_load_n(&entries[i].fn, __ATOMIC_RELAXED); i++)
		if (__atomic_load_n(&entries[i].used, __ATOMIC_RELAXED) && __atomic_load_n(&entries[i].key, __ATOMIC_RELAXED) == key)
			give(i);
}

typedef int create_fn(pthread_key_t *, void (*)(void *));

static int create(create_fn *real, int ok, pthread_key_t *key, void (*destructor)(void *))
{
	struct rs_thread *t = rs_self();
	if (!t || !rs_config.all)
		return real(key, destructor);
	unsigned i = destructor ? take((uintptr_t)destructor) : STUBS;
	if (i < STUBS)
		__atomic_store_n(&entries[i].key, NO_KEY, __ATOMIC_RELAXED);
	pthread_key_t k;
	int r = real(&k, i < STUBS ? (void (*)(void *))(rs_key_stubs + i * STUB_BYTES) : destructor);
	if (r != ok) {
		if (i < STUBS)
			give(i);
		return r;
	}
	if (i < STUBS)
		__atomic_store_n(&entries[i].key, k, __ATOMIC_RELAXED);
	*key = k;
	RS_EMIT(t, KEY_CREATE, key_create, k, (uintptr_t)destructor);
	return r;
}

static void delete(uint32_t key)
{
	struct rs_thread *t = rs_self();
	if (!t || !rs_config.all)
		return;
	deleted(key);
	RS_EMIT(t, KEY_DELETE, key_delete, key);
}

RS_EXPORT int pthread_key_create(pthread_key_t *key, void (*destructor)(void *))
{
	RS_OPENS();
	return create(RS_REAL(pthread_key_create), 0, key, destructor);
}
RS_ALIAS(__pthread_key_create, pthread_key_create);

RS_EXPORT int tss_create(tss_t *key, tss_dtor_t destructor)
{
	RS_OPENS();
	return create(RS_REAL(tss_create), thrd_success, key, destructor);
}

RS_EXPORT int pthread_key_delete(pthread_key_t key)
{
	int r = RS_REAL(pthread_key_delete)(key);
	if (r == 0)
		delete(key);
	return r;
}

RS_EXPORT void tss_delete(tss_t key)
{
	RS_REAL(tss_delete)(key);
	delete(key);
}
