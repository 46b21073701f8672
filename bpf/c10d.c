/*
 * PyTorch's process groups over gloo: which operation of which group a worker thread is running.
 *
 * ProcessGroupGloo::allreduce (broadcast, ...) runs on the caller's thread: it makes an AsyncWork, hands it to
 * ProcessGroupGloo::enqueue and returns; a worker thread later runs AsyncWork::execute, which does the transfer and
 * waits for the peers. `execute` knows neither operation nor group, so the three are joined by the work's address:
 * issue (thread -> operation), enqueue (work -> operation, group, sequence), execute (a call as in calls.c).
 *
 * Cost: two entry probes more per collective (about 0.5 us each). Caveats: the sequence is the order of issue; where
 * `enqueue` is not visible, operation and group are 0 (unknown) and the sequence is the order of execution. Group is
 * the ProcessGroupGloo's address. Bytes are not told: a tensor's layout differs between versions.
 */
struct pending {
    u64 communicator;
    u64 sequence;
    u64 function;
};
/* thread -> the operation that it is issuing */
BPF_TABLE("lru_hash", u64, u64, issuing, 4096);
/* the address of a work that no thread has begun yet */
struct work_key {
    u64 tgid;
    u64 work;
};
BPF_TABLE("lru_hash", struct work_key, struct pending, pending_works, 16384);

int c10d_issue(struct pt_regs *ctx) {
    u64 id = bpf_get_current_pid_tgid();
    u32 tgid = id >> 32;
    if (!processes.lookup(&tgid))
        return 0;
    u64 function = COOKIE_FUNCTION(bpf_get_attach_cookie(ctx));
    issuing.update(&id, &function);
    return 0;
}

/* void ProcessGroupGloo::enqueue(intrusive_ptr<AsyncWork>): this, then the address of the pointer to the work */
int c10d_enqueue(struct pt_regs *ctx) {
    u64 id = bpf_get_current_pid_tgid();
    u32 tgid = id >> 32;
    if (!processes.lookup(&tgid))
        return 0;
    struct work_key key = {.tgid = tgid};
    if (bpf_probe_read_user(&key.work, sizeof(key.work), (void *)PT_REGS_PARM2(ctx)))
        return 0;
    struct pending pending = {.communicator = PT_REGS_PARM1(ctx)};
    u64 *function = issuing.lookup(&id);
    if (function) {
        pending.function = *function;
        issuing.delete(&id);
    }
    pending.sequence = next_sequence(tgid, pending.communicator);
    pending_works.update(&key, &pending);
    return 0;
}

/* static void AsyncWork::execute(intrusive_ptr<AsyncWork>): the address of the pointer to the work */
int c10d_execute(struct pt_regs *ctx) {
    u64 id = bpf_get_current_pid_tgid();
    u32 tgid = id >> 32, tid = id;
    struct process *process = processes.lookup(&tgid);
    if (!process)
        return 0;
    u64 cookie = bpf_get_attach_cookie(ctx);
    struct open_call call = {
        .start_ns = bpf_ktime_get_ns(), .bytes = NO_BYTES, .function = COOKIE_FUNCTION(cookie)};
    struct work_key key = {.tgid = tgid};
    bpf_probe_read_user(&key.work, sizeof(key.work), (void *)PT_REGS_PARM1(ctx));
    struct pending *pending = pending_works.lookup(&key);
    if (pending) {
        call.communicator = pending->communicator;
        call.sequence = pending->sequence;
        if (pending->function)
            call.function = pending->function;
        pending_works.delete(&key);
    } else {
        call.sequence = next_sequence(tgid, 0);
    }
    begin(ctx, id, cookie, process, threads.lookup(&tid), &call);
    return 0;
}
