/*
 * NCCL's communicators: which one a collective is called on, under a name that all its ranks agree on.
 *
 * A communicator is made by ncclCommInitRank and its like from an ncclUniqueId, 128 random bytes that every rank passes
 * alike; its name is their hash. One made from another one (ncclCommSplit, ncclCommShrink) is named after it, the
 * colour and how many were made of it before, as every rank of the parent makes these calls in one order. The address
 * that the call returns leads to the name from then on, until ncclCommDestroy or ncclCommAbort.
 *
 * Cost: one more look-up a collective, about 50 ns. Caveats: a communicator that was made before watching began has no
 * name here, and user space numbers it; so has one of ncclCommInitAll (whose ranks are all in one process) or
 * ncclCommGrow. The rank is known of those made from an id, -1 else.
 */

/* an address in user space never has this bit: a record's communicator that has it is a name */
#define COMMUNICATOR_NAMED (1ULL << 63)

/* children: how many communicators were made from it */
struct communicator {
    u64 name;
    u64 children;
    s32 rank;
    s32 size;
};
BPF_HASH(communicators, struct group_key, struct communicator, MAX_ROWS);
/* thread -> the communicator that it is making */
BPF_TABLE("lru_hash", u64, struct communicator, founding, 4096);

static __always_inline u64 mix(u64 hash, u64 word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ (hash >> 29);
}

struct unique_id {
    u64 words[16];
};

static __always_inline u64 name_of(void *unique_id) {
    struct unique_id id = {};
    u64 hash = 0;
    if (bpf_probe_read_user(&id, sizeof(id), unique_id))
        return 0;
#pragma unroll
    for (int i = 0; i < 16; i++)
        hash = mix(hash, id.words[i]);
    return hash | COMMUNICATOR_NAMED;
}

/* Note a call that makes a communicator, and writes its address to `place`. */
static __always_inline void found(struct pt_regs *ctx, struct caller *caller, struct communicator *made, u64 place) {
    struct open_call call = {
        .function = COOKIE_FUNCTION(caller->cookie), .start_ns = bpf_ktime_get_ns(), .bytes = NO_BYTES, .place = place};
    if (made->name)
        founding.update(&caller->id, made);
    else
        founding.delete(&caller->id);
    begin(ctx, caller->id, caller->cookie, caller->process, caller->thread, &call);
}

/* (ncclComm_t *made, int size, ncclUniqueId id, int rank): the id is on the stack, so that the rank is the third */
int nccl_init_entry(struct pt_regs *ctx) {
    struct caller caller = caller_of(ctx);
    if (!caller.process)
        return 0;
    struct communicator made = {.size = PT_REGS_PARM2(ctx), .rank = PT_REGS_PARM3(ctx)};
#if defined(__x86_64__)
    made.name = name_of((void *)(PT_REGS_SP(ctx) + 8));
#else
    /* by reference where a structure of this size is passed so */
    made.name = name_of((void *)PT_REGS_PARM3(ctx));
    made.rank = PT_REGS_PARM4(ctx);
#endif
    found(ctx, &caller, &made, PT_REGS_PARM1(ctx));
    return 0;
}

/* (ncclComm_t *made, int size, int rank, int n_ids, ncclUniqueId *ids, ...): every rank passes the same ids */
int nccl_scalable_entry(struct pt_regs *ctx) {
    struct caller caller = caller_of(ctx);
    if (!caller.process)
        return 0;
    struct communicator made = {.size = PT_REGS_PARM2(ctx), .rank = PT_REGS_PARM3(ctx)};
    made.name = name_of((void *)PT_REGS_PARM5(ctx));
    found(ctx, &caller, &made, PT_REGS_PARM1(ctx));
    return 0;
}

static __always_inline int nccl_child(struct pt_regs *ctx, u64 kind, u64 colour) {
    struct caller caller = caller_of(ctx);
    if (!caller.process)
        return 0;
    struct communicator made = {.rank = -1};
    struct group_key key = {.tgid = caller.tgid, .communicator = PT_REGS_PARM1(ctx)};
    struct communicator *parent = communicators.lookup(&key);
    if (parent) {
        made.name = mix(mix(mix(parent->name, parent->children), kind), colour) | COMMUNICATOR_NAMED;
        parent->children += 1;
    }
    found(ctx, &caller, &made, PT_REGS_PARM4(ctx));
    return 0;
}

/* (ncclComm_t parent, int colour, int key, ncclComm_t *made, ...) */
int nccl_split_entry(struct pt_regs *ctx) {
    return nccl_child(ctx, 1, (u32)PT_REGS_PARM2(ctx));
}

/* (ncclComm_t parent, int *excluded, int n_excluded, ncclComm_t *made, ...) */
int nccl_shrink_entry(struct pt_regs *ctx) {
    return nccl_child(ctx, 2, (u32)PT_REGS_PARM3(ctx));
}

int nccl_init_return(struct pt_regs *ctx) {
    struct returning back = {};
    find_returning(ctx, &back);
    if (!back.call)
        return 0;
    struct communicator *made = founding.lookup(&back.key.pid_tgid);
    struct group_key key = {.tgid = back.tgid};
    bpf_probe_read_user(&key.communicator, sizeof(key.communicator), (void *)back.call->place);
    if (made && key.communicator && !failed(back.cookie, PT_REGS_RC(ctx))) {
        if (communicators.update(&key, made))
            __sync_fetch_and_add(&back.process->lost, 1);
        sequences.delete(&key);
    }
    founding.delete(&back.key.pid_tgid);
    settle(&back, PT_REGS_RC(ctx));
    return 0;
}

/* (ncclComm_t communicator): its address may be another one's as soon as this returns */
int nccl_end_entry(struct pt_regs *ctx) {
    struct caller caller = caller_of(ctx);
    if (!caller.process)
        return 0;
    struct group_key key = {.tgid = caller.tgid, .communicator = PT_REGS_PARM1(ctx)};
    communicators.delete(&key);
    sequences.delete(&key);
    struct open_call call = {
        .function = COOKIE_FUNCTION(caller.cookie), .start_ns = bpf_ktime_get_ns(), .bytes = NO_BYTES};
    begin(ctx, caller.id, caller.cookie, caller.process, caller.thread, &call);
    return 0;
}

/* A collective: numbered by the communicator's address, told under its name. */
int nccl_entry(struct pt_regs *ctx) {
    struct caller caller = caller_of(ctx);
    if (!caller.process)
        return 0;
    u64 cookie = caller.cookie;
    struct open_call call = {.function = COOKIE_FUNCTION(cookie), .start_ns = bpf_ktime_get_ns()};
    struct arguments arguments = {};
    read_arguments(ctx, cookie, &arguments);
    call.bytes = payload_bytes(&arguments, cookie);
    struct group_key key = {.tgid = caller.tgid, .communicator = arguments.at[COOKIE_COMMUNICATOR(cookie)]};
    struct communicator *known = communicators.lookup(&key);
    call.communicator = known ? known->name : key.communicator;
    call.sequence = next_sequence(caller.tgid, key.communicator);
    begin(ctx, caller.id, cookie, caller.process, caller.thread, &call);
    return 0;
}

/* (ncclComm_t communicator, ncclResult_t *error): what it found counts as the call's result */
int nccl_async_error_entry(struct pt_regs *ctx) {
    struct caller caller = caller_of(ctx);
    if (!caller.process)
        return 0;
    struct open_call call = {.function = COOKIE_FUNCTION(caller.cookie),
                             .start_ns = bpf_ktime_get_ns(),
                             .bytes = NO_BYTES,
                             .place = PT_REGS_PARM2(ctx)};
    begin(ctx, caller.id, caller.cookie, caller.process, caller.thread, &call);
    return 0;
}

int nccl_async_error_return(struct pt_regs *ctx) {
    struct returning back = {};
    find_returning(ctx, &back);
    if (!back.call)
        return 0;
    s32 result = PT_REGS_RC(ctx);
    if (!result)
        bpf_probe_read_user(&result, sizeof(result), (void *)back.call->place);
    settle(&back, result);
    return 0;
}
