/*
 * CUDA's memory and copies: bytes allocated and not freed, and copies by direction.
 *
 * Allocations are remembered by what they return (an address, or the handle of cuMemCreate) until they are freed; a free
 * that fails gives them back. Cost: two more map operations an allocation and a free, one comparison a copy. Caveats:
 * what was allocated before watching began is not known and its free changes nothing; a copy whose direction the call
 * leaves to the driver (cudaMemcpyDefault) stays without one; the pool that an asynchronous free returns to may keep the
 * memory.
 */
#define MAX_ALLOCATIONS 65536
/* cudaMemcpyKind 0..3 are host and device to host and device, 4 is for the driver to find out */
#define COPY_DEFAULT 4

struct allocation_key {
    u64 tgid;
    u64 at;
};
BPF_HASH(allocations, struct allocation_key, u64, MAX_ALLOCATIONS);

/* totals by process; what found no room in `allocations` makes the difference worthless */
struct memory {
    u64 allocated_bytes;
    u64 freed_bytes;
    u64 forgotten;
};
BPF_HASH(memories, u32, struct memory, MAX_PROCESSES);

int cuda_copy_entry(struct pt_regs *ctx) {
    struct caller caller = caller_of(ctx);
    if (!caller.process)
        return 0;
    struct arguments arguments = {};
    read_arguments(ctx, caller.cookie, &arguments);
    u64 kind = arguments.at[COOKIE_DATATYPE(caller.cookie)] & 0xffffffff;
    /* the functions' numbers follow each other in the order of the directions */
    struct open_call call = {.function = COOKIE_FUNCTION(caller.cookie) + (kind < COPY_DEFAULT ? kind : COPY_DEFAULT),
                             .start_ns = bpf_ktime_get_ns(),
                             .bytes = arguments.at[COOKIE_BYTES(caller.cookie)]};
    begin(ctx, caller.id, caller.cookie, caller.process, caller.thread, &call);
    return 0;
}

/* The first argument is where the address or handle will be written. */
int cuda_alloc_entry(struct pt_regs *ctx) {
    struct caller caller = caller_of(ctx);
    if (!caller.process)
        return 0;
    struct arguments arguments = {};
    read_arguments(ctx, caller.cookie, &arguments);
    struct open_call call = {.function = COOKIE_FUNCTION(caller.cookie),
                             .start_ns = bpf_ktime_get_ns(),
                             .bytes = arguments.at[COOKIE_BYTES(caller.cookie)],
                             .place = arguments.at[1]};
    begin(ctx, caller.id, caller.cookie, caller.process, caller.thread, &call);
    return 0;
}

int cuda_alloc_return(struct pt_regs *ctx) {
    struct returning back = {};
    find_returning(ctx, &back);
    if (!back.call)
        return 0;
    u64 bytes = back.call->bytes;
    struct allocation_key key = {.tgid = back.tgid};
    bpf_probe_read_user(&key.at, sizeof(key.at), (void *)back.call->place);
    struct memory none = {};
    struct memory *memory = memories.lookup_or_try_init(&back.tgid, &none);
    if (memory && key.at && !failed(back.cookie, PT_REGS_RC(ctx))) {
        /* whoever was there before is gone, though nobody saw how */
        u64 *before = allocations.lookup(&key);
        if (before)
            __sync_fetch_and_add(&memory->freed_bytes, *before);
        if (allocations.update(&key, &bytes)) {
            __sync_fetch_and_add(&memory->forgotten, 1);
            __sync_fetch_and_add(&back.process->lost, 1);
        } else {
            __sync_fetch_and_add(&memory->allocated_bytes, bytes);
        }
    }
    settle(&back, PT_REGS_RC(ctx));
    return 0;
}

/* At the entry: as soon as the call returns, the address may be another allocation's. */
int cuda_free_entry(struct pt_regs *ctx) {
    struct caller caller = caller_of(ctx);
    if (!caller.process)
        return 0;
    struct allocation_key key = {.tgid = caller.tgid, .at = PT_REGS_PARM1(ctx)};
    struct open_call call = {.function = COOKIE_FUNCTION(caller.cookie),
                             .start_ns = bpf_ktime_get_ns(),
                             .bytes = NO_BYTES,
                             .place = key.at};
    u64 *bytes = allocations.lookup(&key);
    if (bytes) {
        call.bytes = *bytes;
        allocations.delete(&key);
    }
    begin(ctx, caller.id, caller.cookie, caller.process, caller.thread, &call);
    return 0;
}

int cuda_free_return(struct pt_regs *ctx) {
    struct returning back = {};
    find_returning(ctx, &back);
    if (!back.call)
        return 0;
    u64 bytes = back.call->bytes;
    struct memory *memory = memories.lookup(&back.tgid);
    if (memory && back.call->bytes >= 0) {
        struct allocation_key key = {.tgid = back.tgid, .at = back.call->place};
        if (!failed(back.cookie, PT_REGS_RC(ctx))) {
            __sync_fetch_and_add(&memory->freed_bytes, bytes);
        } else {
            allocations.update(&key, &bytes);
            back.call->bytes = NO_BYTES;
        }
    }
    settle(&back, PT_REGS_RC(ctx));
    return 0;
}
