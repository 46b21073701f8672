/*
 * Calls of traced functions, any library: aggregated per process and function.
 *
 * Measures: calls that returned (count, errors, bytes, total and greatest time, log2 histogram of nanoseconds) and, in
 * `open_calls`, the calls in flight. A call marked as a record (a collective) is also written to `records`, one by one.
 * Cost: one entry and one return probe a call, about 1 us a call together where the first instruction can be emulated.
 * Caveats: a host call's duration is the enqueue where the library is asynchronous (CUDA, NCCL). A function left by an
 * exception has no return: its entry in `open_calls` is recognised by thread.settled_ns once the same thread makes a call
 * from no deeper in its stack. Two calls of one function that return in the same instant on two CPUs may lose the
 * smaller of two new maxima, never a count.
 *
 * Functions of one family (CUDA's runtime and driver; NCCL) call each other: within a thread only the outermost counts.
 *
 * What is to be done with a function is in its cookie (see eacgm/producers/probes.py, the same bits):
 */
#define COOKIE_FUNCTION(cookie) ((u32)((cookie) & 0xffff))
#define COOKIE_ERRORS(cookie) (((cookie) >> 16) & 0x7)
#define COOKIE_BYTES(cookie) (((cookie) >> 20) & 0x7)
#define COOKIE_DATATYPE(cookie) (((cookie) >> 24) & 0x7)
#define COOKIE_COMMUNICATOR(cookie) (((cookie) >> 28) & 0x7)
#define COOKIE_FAMILY(cookie) (((cookie) >> 36) & 0x3)
#define COOKIE_ARGUMENTS 0x77700000ULL
#define COOKIE_STEP (1ULL << 32)
#define COOKIE_RECORD (1ULL << 33)
#define COOKIE_MARKER (1ULL << 34)

#define ERRORS_NONZERO 1
#define ERRORS_NEGATIVE 2
#define ERRORS_NULL 3
/* not zero, and not what a query says of work that goes on: cudaErrorNotReady, ncclInProgress */
#define ERRORS_CUDA 4
#define ERRORS_NCCL 5
#define CUDA_NOT_READY 600
#define NCCL_IN_PROGRESS 7

#define N_BUCKETS 44
#define NO_BYTES (-1LL)

/* log2 of the sizes of ncclDataType_t 0..11, four bits each (nccl.h) */
#define NCCL_SIZES 0x001321332200ULL

/* sp tells recursive calls apart */
struct call_key {
    u64 pid_tgid;
    u64 sp;
    u64 cookie;
};
/*
 * function: under which the call is counted; sequence: of the record within its communicator and process; place: where
 * the call will write what it makes
 */
struct open_call {
    u64 start_ns;
    s64 bytes;
    u64 communicator;
    u64 sequence;
    u64 function;
    u64 place;
};
BPF_HASH(open_calls, struct call_key, struct open_call, MAX_OPEN);

struct row_key {
    u32 tgid;
    u32 function;
};
/* max_ns[n % 2] is the greatest of interval n = max_interval[n % 2] */
struct row {
    u64 count;
    u64 errors;
    u64 bytes;
    u64 total_ns;
    u64 max_ns[2];
    u64 max_interval[2];
    u64 histogram[N_BUCKETS];
};
BPF_HASH(rows, struct row_key, struct row, MAX_ROWS);
/* a new row's content: too large for the stack */
BPF_ARRAY(blank_row, struct row, 1);

/* errors by what was returned: totals, as in rows */
struct error_key {
    u32 tgid;
    u32 function;
    s32 code;
    u32 unused;
};
BPF_HASH(error_codes, struct error_key, u64, MAX_ROWS);

struct record {
    u64 start_ns;
    u64 end_ns;
    u64 communicator;
    u64 sequence;
    s64 bytes;
    s32 return_code;
    u32 tgid;
    u32 tid;
    u32 function;
};
BPF_RINGBUF_OUTPUT(records, RECORD_PAGES);

/* next record's number, by process and communicator */
struct group_key {
    u64 tgid;
    u64 communicator;
};
BPF_HASH(sequences, struct group_key, u64, MAX_ROWS);

/* A call's first seven whole-number arguments, [1] to [7]: a table, as the verifier allows no computed register. */
struct arguments {
    u64 at[8];
};

static __always_inline void read_arguments(struct pt_regs *ctx, u64 cookie, struct arguments *arguments) {
    arguments->at[1] = PT_REGS_PARM1(ctx);
    arguments->at[2] = PT_REGS_PARM2(ctx);
    arguments->at[3] = PT_REGS_PARM3(ctx);
    arguments->at[4] = PT_REGS_PARM4(ctx);
    arguments->at[5] = PT_REGS_PARM5(ctx);
    arguments->at[6] = PT_REGS_PARM6(ctx);
#if defined(__x86_64__)
    /* the first one on the stack, above the return address */
    if (COOKIE_COMMUNICATOR(cookie) == 7)
        bpf_probe_read_user(&arguments->at[7], sizeof(u64), (void *)(PT_REGS_SP(ctx) + 8));
#endif
}

static __always_inline s64 payload_bytes(struct arguments *arguments, u64 cookie) {
    if (!COOKIE_BYTES(cookie))
        return NO_BYTES;
    u64 amount = arguments->at[COOKIE_BYTES(cookie)];
    if (COOKIE_DATATYPE(cookie)) {
        u64 datatype = arguments->at[COOKIE_DATATYPE(cookie)] & 0xffffffff;
        if (datatype > 11)
            return NO_BYTES;
        amount <<= (NCCL_SIZES >> (datatype * 4)) & 0xf;
    }
    return amount;
}

/* Not atomic: the ranks of a communicator must agree on the order of its calls, so that one thread at a time issues. */
static __always_inline u64 next_sequence(u32 tgid, u64 communicator) {
    struct group_key key = {.tgid = tgid, .communicator = communicator};
    u64 first = 0;
    u64 *next = sequences.lookup_or_try_init(&key, &first);
    if (!next)
        return 0;
    u64 sequence = *next;
    *next = sequence + 1;
    return sequence;
}

/* Tell whether a call is part of another one of its family, on the same thread; if not, note that it has begun. */
static __always_inline int is_part(struct thread *thread, u64 cookie, u64 sp) {
    u32 family = COOKIE_FAMILY(cookie);
    if (!family || !thread)
        return 0;
    int zero = 0;
    u64 *now = sheddings.lookup(&zero);
    if (now && thread->sheddings != *now) {
        thread->sheddings = *now;
        thread->family_sp[0] = thread->family_sp[1] = 0;
    }
    u64 *outer = &thread->family_sp[(family - 1) & (N_FAMILIES - 1)];
    if (sp < *outer)
        return 1;
    *outer = sp;
    return 0;
}

/* Note a call in flight; `thread` is the caller's entry in `threads`, NULL if it has none. */
static __always_inline void begin(struct pt_regs *ctx, u64 id, u64 cookie, struct process *process,
                                  struct thread *thread, struct open_call *call) {
    u64 sp = PT_REGS_SP(ctx);
    struct call_key key = {.pid_tgid = id, .sp = cookie & COOKIE_MARKER ? 0 : sp, .cookie = cookie};

    if (thread && (thread->outer_sp == 0 || sp >= thread->outer_sp)) {
        thread->outer_sp = sp;
        thread->settled_ns = call->start_ns;
    }
    if (open_calls.update(&key, call))
        __sync_fetch_and_add(&process->lost, 1);
}

/* Who makes a call: `process` is NULL where it is not watched, or where the call is part of another one. */
struct caller {
    struct process *process;
    struct thread *thread;
    u64 id;
    u64 cookie;
    u32 tgid;
};

static __always_inline struct caller caller_of(struct pt_regs *ctx) {
    struct caller caller = {.id = bpf_get_current_pid_tgid()};
    u32 tid = caller.id;
    caller.tgid = caller.id >> 32;
    caller.process = processes.lookup(&caller.tgid);
    if (!caller.process)
        return caller;
    caller.cookie = bpf_get_attach_cookie(ctx);
    caller.thread = threads.lookup(&tid);
    if (is_part(caller.thread, caller.cookie, PT_REGS_SP(ctx)))
        caller.process = NULL;
    return caller;
}

int call_entry(struct pt_regs *ctx) {
    struct caller caller = caller_of(ctx);
    struct process *process = caller.process;
    if (!process)
        return 0;
    u64 cookie = caller.cookie;
    struct open_call call = {.function = COOKIE_FUNCTION(cookie), .start_ns = bpf_ktime_get_ns()};

    if (cookie & COOKIE_STEP) {
        /* A backward within a backward (checkpointing, on any thread) is part of it, not a step of its own. */
        u64 sp = PT_REGS_SP(ctx);
        bool again = process->step_tid == (u32)caller.id && sp >= process->step_sp;
        if (process->step_sp && !again)
            return 0;
        process->step_tid = (u32)caller.id;
        process->step_sp = sp;
    }
    struct arguments arguments = {};
    if (cookie & COOKIE_ARGUMENTS)
        read_arguments(ctx, cookie, &arguments);
    call.bytes = payload_bytes(&arguments, cookie);
    if (cookie & COOKIE_RECORD) {
        call.communicator = arguments.at[COOKIE_COMMUNICATOR(cookie)];
        call.sequence = next_sequence(caller.tgid, call.communicator);
    }
    begin(ctx, caller.id, cookie, process, caller.thread, &call);
    return 0;
}

static __always_inline int failed(u64 cookie, u64 result) {
    switch (COOKIE_ERRORS(cookie)) {
    case ERRORS_NONZERO:
        return (s32)result != 0;
    case ERRORS_NEGATIVE:
        return (s32)result < 0;
    case ERRORS_NULL:
        return result == 0;
    case ERRORS_CUDA:
        return (s32)result != 0 && (s32)result != CUDA_NOT_READY;
    case ERRORS_NCCL:
        return (s32)result != 0 && (s32)result != NCCL_IN_PROGRESS;
    }
    return 0;
}

static __always_inline void count_error(u32 tgid, struct process *process, u32 function, s32 code) {
    struct error_key key = {.tgid = tgid, .function = function, .code = code};
    u64 none = 0;
    u64 *total = error_codes.lookup_or_try_init(&key, &none);
    if (total)
        __sync_fetch_and_add(total, 1);
    else
        __sync_fetch_and_add(&process->lost, 1);
}

static __always_inline void count(u32 tgid, struct process *process, struct open_call *call, u64 duration_ns,
                                  int error) {
    struct row_key key = {.tgid = tgid, .function = call->function};
    struct row *row = rows.lookup(&key);
    int zero = 0;
    if (!row) {
        struct row *blank = blank_row.lookup(&zero);
        if (blank)
            rows.insert(&key, blank);
        row = rows.lookup(&key);
        if (!row) {
            __sync_fetch_and_add(&process->lost, 1);
            return;
        }
    }
    __sync_fetch_and_add(&row->count, 1);
    __sync_fetch_and_add(&row->total_ns, duration_ns);
    if (error)
        __sync_fetch_and_add(&row->errors, 1);
    if (call->bytes > 0)
        __sync_fetch_and_add(&row->bytes, call->bytes);
    u32 bucket = bpf_log2l(duration_ns | 1) - 1;
    if (bucket >= N_BUCKETS)
        bucket = N_BUCKETS - 1;
    __sync_fetch_and_add(&row->histogram[bucket], 1);

    u64 *now = interval.lookup(&zero);
    if (!now)
        return;
    u32 half = *now & 1;
    if (row->max_interval[half] != *now) {
        row->max_interval[half] = *now;
        row->max_ns[half] = 0;
    }
    if (duration_ns > row->max_ns[half])
        row->max_ns[half] = duration_ns;
}

/* A call that returns: `call` is NULL where it is not in flight for us. */
struct returning {
    struct process *process;
    struct open_call *call;
    u64 cookie;
    u64 now;
    u32 tgid;
    u32 tid;
    struct call_key key;
};

static __always_inline void find_returning(struct pt_regs *ctx, struct returning *back) {
    u64 id = bpf_get_current_pid_tgid();
    back->tgid = id >> 32;
    back->tid = id;
    back->process = processes.lookup(&back->tgid);
    if (!back->process)
        return;
    u64 cookie = back->cookie = bpf_get_attach_cookie(ctx);
    u64 sp = PT_REGS_SP(ctx) - (cookie & COOKIE_MARKER ? 0 : RETURN_SHIFT);
    back->key.pid_tgid = id;
    back->key.sp = cookie & COOKIE_MARKER ? 0 : sp;
    back->key.cookie = cookie;
    back->now = bpf_ktime_get_ns();

    struct thread *thread = threads.lookup(&back->tid);
    if (thread && sp >= thread->outer_sp) {
        thread->outer_sp = 0;
        thread->settled_ns = back->now;
    }
    u32 family = COOKIE_FAMILY(cookie);
    if (thread && family && sp >= thread->family_sp[(family - 1) & (N_FAMILIES - 1)])
        thread->family_sp[(family - 1) & (N_FAMILIES - 1)] = 0;
    if (cookie & COOKIE_STEP && back->process->step_tid == back->tid && sp >= back->process->step_sp)
        back->process->step_sp = 0;
    back->call = open_calls.lookup(&back->key);
}

/* Count a call that was in flight, write its record, and forget it. */
static __always_inline void settle(struct returning *back, u64 result) {
    struct open_call *call = back->call;
    u64 cookie = back->cookie;
    int error = failed(cookie, result);
    count(back->tgid, back->process, call, back->now - call->start_ns, error);
    if (error)
        count_error(back->tgid, back->process, call->function, result);
    if (cookie & COOKIE_RECORD) {
        struct record *record = records.ringbuf_reserve(sizeof(struct record));
        if (record) {
            record->start_ns = call->start_ns;
            record->end_ns = back->now;
            record->communicator = call->communicator;
            record->sequence = call->sequence;
            record->bytes = call->bytes;
            record->return_code = error ? (s32)result : 0;
            record->tgid = back->tgid;
            record->tid = back->tid;
            record->function = call->function;
            records.ringbuf_submit(record, 0);
        } else {
            __sync_fetch_and_add(&back->process->lost, 1);
        }
    }
    open_calls.delete(&back->key);
}

int call_return(struct pt_regs *ctx) {
    struct returning back = {};
    find_returning(ctx, &back);
    if (back.call)
        settle(&back, PT_REGS_RC(ctx));
    return 0;
}
