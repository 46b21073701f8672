/*
 * A stand-in for the CUDA driver, built as libcuda.so.1: its functions take the real ones' arguments (cuda.h), hand out
 * addresses, and take as long, fail and hang as they are told.
 */
#include <stddef.h>
#include <unistd.h>

/* what the test sets: microseconds and result of each call, and whether calls wait until this is 0 again */
int delay_us, result;
volatile int hanging;
/* addresses of device memory: nobody reads what is there; a freed one is given out again */
static unsigned long next = 0x7f0000000000, spare;

static int behave(void) {
    if (delay_us)
        usleep(delay_us);
    while (hanging)
        usleep(1000);
    return result;
}

static int give(unsigned long *where, size_t bytes) {
    int code = behave();
    if (code)
        return code;
    unsigned long old = __atomic_exchange_n(&spare, 0, __ATOMIC_SEQ_CST);
    *where = old ? old : __atomic_fetch_add(&next, (bytes + 511) / 512 * 512, __ATOMIC_SEQ_CST);
    return 0;
}

static int take(unsigned long where) {
    int code = behave();
    if (!code)
        spare = where;
    return code;
}

int cuMemAlloc_v2(unsigned long *where, size_t bytes) { return give(where, bytes); }
int cuMemAllocManaged(unsigned long *where, size_t bytes, unsigned flags) { return (void)flags, give(where, bytes); }
int cuMemAllocAsync(unsigned long *where, size_t bytes, void *stream) { return (void)stream, give(where, bytes); }
int cuMemCreate(unsigned long *handle, size_t bytes, const void *properties, unsigned long flags) {
    return (void)properties, (void)flags, give(handle, bytes);
}
int cuMemFree_v2(unsigned long where) { return take(where); }
int cuMemFreeAsync(unsigned long where, void *stream) { return (void)stream, take(where); }
int cuMemRelease(unsigned long handle) { return take(handle); }

int cuMemcpyHtoD_v2(unsigned long to, const void *from, size_t bytes) { return (void)to, (void)from, (void)bytes, behave(); }
int cuMemcpyDtoH_v2(void *to, unsigned long from, size_t bytes) { return (void)to, (void)from, (void)bytes, behave(); }
int cuMemcpyHtoDAsync_v2(unsigned long to, const void *from, size_t bytes, void *stream) {
    return (void)to, (void)from, (void)bytes, (void)stream, behave();
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long from, size_t bytes, void *stream) {
    return (void)to, (void)from, (void)bytes, (void)stream, behave();
}
int cuMemcpy(unsigned long to, unsigned long from, size_t bytes) { return (void)to, (void)from, (void)bytes, behave(); }
int cuMemcpyAsync(unsigned long to, unsigned long from, size_t bytes, void *stream) {
    return (void)to, (void)from, (void)bytes, (void)stream, behave();
}
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    (void)function, (void)x, (void)y, (void)z, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
    return (void)arguments, (void)extra, behave();
}
int cuStreamSynchronize(void *stream) { return (void)stream, behave(); }
int cuEventQuery(void *event) { return (void)event, behave(); }
