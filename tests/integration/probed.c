/* A library whose calls are known: what the tests of the probes count. */
#include <setjmp.h>
#include <stddef.h>
#include <unistd.h>

/* Sleeps, and returns what it is told to. */
int work(long microseconds, size_t bytes, int result) {
    (void)bytes;
    usleep(microseconds);
    return result;
}

int recurse(int depth) {
    usleep(2000);
    int below = depth > 1 ? recurse(depth - 1) : 0;
    return below + 1;
}

int outer(long microseconds) {
    usleep(microseconds);
    return work(microseconds, 0, 0) + 1;
}

int forever(void) {
    for (;;)
        pause();
    return 0;
}

/* Leaves without returning, as an exception does. */
static jmp_buf before;
int escape(void) {
    usleep(1000);
    longjmp(before, 1);
}
int catch_escape(void) {
    volatile char deep[8192];
    deep[0] = 0;
    return setjmp(before) ? deep[0] : escape();
}

/* As ncclReduceScatter: count x datatype, on a communicator. */
int share(const void *from, void *to, size_t count, int datatype, int operation, void *communicator) {
    (void)from, (void)to, (void)datatype, (void)operation;
    if (communicator == NULL)
        return 4;
    usleep(count);
    return 0;
}

int beat(long microseconds) {
    usleep(microseconds);
    return 1;
}

/* A function whose first instruction the kernel has to single-step. */
__asm__(".globl lean\n.type lean,@function\nlean:\n xor %eax,%eax\n ret\n.size lean,.-lean\n");

/* An alias: one address, two names. */
int work_alias(long microseconds, size_t bytes, int result) __attribute__((alias("work")));
