// Calls of the C library's functions that copy, set and compare memory: of every size class, by calls, by jumps at the end of a function, by pointers, from a
// callback of the library, left by a signal's handler, and from two threads.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <wchar.h>

static volatile size_t sizes[] = {0, 1, 3, 8, 15, 16, 31, 32, 33, 64, 100, 128, 200, 256, 300, 1000, 5000, 40000};
static char *volatile a, *volatile b;
static volatile uint64_t sum;

__attribute__((noinline)) static void *tail(void *to, const void *from, size_t n) { return memmove(to, from, n); }

static int order(const void *x, const void *y) { return memcmp(x, y, 16); }

static sigjmp_buf away;
static void leave(int sig) { siglongjmp(away, sig); }

static void *work(void *arg) {
    static __thread char mine[64], other[64];
    for (volatile size_t n = 0; n < 20; n++) {
        memcpy(mine, arg, n + 1);
        memset(other, 1, n + 30);
        sum += mine[n] + other[n];
    }
    return NULL;
}

int main(void) {
    a = malloc(1 << 17), b = malloc(1 << 17);
    memset(a, 'x', 1 << 16);
    void *(*volatile pointer)(void *, const void *, size_t) = memcpy;
    for (volatile size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t n = sizes[i];
        memcpy(b, a, n);
        pointer(b + 3, a + 5, n);
        memmove(a + 7, a, n);   // they overlap
        memmove(a, a + 9, n);
        memmove(a, (char *)a, n); // it is there already
        tail(b + 1, a + 1, n);
        sum += *(char *)mempcpy(b, a, n) + memcmp(a, b, n) + memcmp(a, b + 1, n) + bcmp(a, b, n);
        memset(b, i, n);
        explicit_bzero(b, n);
        bcopy(a, b, n);
        wmemset((wchar_t *)b, 'w', n / 4);
        wmemcpy((wchar_t *)b, (wchar_t *)a, n / 4);
        memset(a, 'y', n), a[n] = 0;
        sum += strlen(a) + (uint64_t)(stpcpy(b, a) - b);
        sum += (uint64_t)b[n / 2];
    }
    char text[20][16];
    for (int i = 0; i < 20; i++)
        snprintf(text[i], sizeof(text[i]), "%d of them", i * 7919 % 97);
    qsort(text, 20, 16, order);
    // What a fault interrupts has not copied all: the destination ends in the middle.
    signal(SIGSEGV, leave);
    char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(edge + 4096, 4096, PROT_NONE);
    for (volatile size_t i = 4; i < sizeof(sizes) / sizeof(*sizes); i++) {
        if (!sigsetjmp(away, 1)) {
            memcpy(edge + 4096 - sizes[i] / 2, a, sizes[i]);
            return 1;
        }
    }
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&t[i], NULL, work, text[i]))
            return 1;
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    return printf("%d\n", text[3][0]) < 0 || sum == 1;
}
