// Two threads fill and copy one record by functions of the C library.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifdef CLEAN
#define LOCK() pthread_mutex_lock(&lock)
#define UNLOCK() pthread_mutex_unlock(&lock)
#else
#define LOCK()
#define UNLOCK()
#endif

struct record { char name[40]; long values[12]; };
static struct record *volatile shared, *volatile spare;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *reader(void *arg) {
    struct record mine[2];
    long sum = 0;
    for (int i = 0; i < 40; i++) {
        LOCK();
        memcpy(&mine[i % 2], shared, sizeof(mine[0])); // race
        UNLOCK();
        sum += mine[i % 2].name[3] + mine[i % 2].values[i % 12];
    }
    return *(long *)arg = sum, arg;
}

int main(void) {
    static struct record one, two;
    pthread_t t;
    long sum = 0;
    shared = &one, spare = &two;
    if (pthread_create(&t, NULL, reader, &sum))
        return 1;
    for (int i = 0; i < 40; i++) {
        memset(spare, i, sizeof(*spare));
        LOCK();
        memmove(shared, spare, sizeof(*spare)); // race
        UNLOCK();
    }
    pthread_join(t, NULL);
    return printf("%ld\n", sum) < 0;
}
