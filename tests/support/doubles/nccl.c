/*
 * A stand-in for NCCL, built as libnccl.so.2: its functions take the real ones' arguments (nccl.h), keep real
 * communicators, and take as long, fail and hang as they are told.
 */
#include <stddef.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct ncclComm {
    int rank;
    int size;
    int async_error;
} *ncclComm_t;

/* what the test sets: microseconds and result of each call, and whether calls wait until this is 0 again */
int delay_us, result;
volatile int hanging;

/* the communicator that was ended last: the next one is made at its address */
static ncclComm_t spare;

static int behave(void) {
    if (delay_us)
        usleep(delay_us);
    while (hanging)
        usleep(1000);
    return result;
}

static int make(ncclComm_t *made, int size, int rank) {
    int code = behave();
    if (code && code != 7)
        return code;
    *made = __atomic_exchange_n(&spare, NULL, __ATOMIC_SEQ_CST);
    if (!*made)
        *made = malloc(sizeof(**made));
    (*made)->async_error = 0;
    (*made)->rank = rank;
    (*made)->size = size;
    return code;
}

int ncclGetUniqueId(ncclUniqueId *id) { return getrandom(id, sizeof(*id), 0) == sizeof(*id) ? 0 : 2; }
int ncclCommInitRank(ncclComm_t *made, int size, ncclUniqueId id, int rank) { return (void)id, make(made, size, rank); }
int ncclCommInitRankConfig(ncclComm_t *made, int size, ncclUniqueId id, int rank, void *config) {
    return (void)id, (void)config, make(made, size, rank);
}
int ncclCommInitRankScalable(ncclComm_t *made, int size, int rank, int n_ids, ncclUniqueId *ids, void *config) {
    return (void)n_ids, (void)ids, (void)config, make(made, size, rank);
}
int ncclCommInitAll(ncclComm_t *made, int n, const int *devices) {
    int code = 0;
    (void)devices;
    for (int i = 0; i < n && !code; i++)
        code = make(made + i, n, i);
    return code;
}
int ncclCommSplit(ncclComm_t parent, int colour, int key, ncclComm_t *made, void *config) {
    (void)parent, (void)key, (void)config;
    *made = NULL;
    return colour < 0 ? behave() : make(made, 0, 0);
}
int ncclCommShrink(ncclComm_t parent, int *excluded, int n, ncclComm_t *made, void *config, int flags) {
    (void)excluded, (void)config, (void)flags;
    return make(made, parent->size - n, 0);
}
int ncclCommFinalize(ncclComm_t communicator) { return (void)communicator, behave(); }
int ncclCommDestroy(ncclComm_t communicator) {
    spare = communicator;
    return 0;
}
int ncclCommAbort(ncclComm_t communicator) {
    hanging = 0;
    spare = communicator;
    return 0;
}
int ncclCommGetAsyncError(ncclComm_t communicator, int *error) {
    *error = communicator->async_error;
    return 0;
}

int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return behave(); }

#define REDUCTION(name)                                                                                                \
    int name(const void *from, void *to, size_t count, int type, int op, ncclComm_t communicator, void *stream) {      \
        (void)from, (void)to, (void)count, (void)type, (void)op, (void)stream;                                         \
        return communicator ? behave() : 4;                                                                            \
    }
REDUCTION(ncclAllReduce)
REDUCTION(ncclReduceScatter)
REDUCTION(ncclBroadcast)
REDUCTION(ncclGather)
REDUCTION(ncclScatter)
#define EXCHANGE(name)                                                                                                 \
    int name(const void *from, void *to, size_t count, int type, ncclComm_t communicator, void *stream) {              \
        (void)from, (void)to, (void)count, (void)type, (void)stream;                                                   \
        return communicator ? behave() : 4;                                                                            \
    }
EXCHANGE(ncclAllGather)
EXCHANGE(ncclAlltoAll)
int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, ncclComm_t communicator,
               void *stream) {
    (void)from, (void)to, (void)count, (void)type, (void)op, (void)root, (void)stream;
    return communicator ? behave() : 4;
}
int ncclSend(const void *from, size_t count, int type, int peer, ncclComm_t communicator, void *stream) {
    (void)from, (void)count, (void)type, (void)peer, (void)stream;
    return communicator ? behave() : 4;
}
int ncclRecv(void *to, size_t count, int type, int peer, ncclComm_t communicator, void *stream) {
    (void)to, (void)count, (void)type, (void)peer, (void)stream;
    return communicator ? behave() : 4;
}
int ncclBcast(void *buffer, size_t count, int type, int root, ncclComm_t communicator, void *stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, communicator, stream);
}
/* one address, two names, as in the real one */
int pncclAllReduce(const void *from, void *to, size_t count, int type, int op, ncclComm_t communicator, void *stream)
    __attribute__((alias("ncclAllReduce")));
