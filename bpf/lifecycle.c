/*
 * Processes that come and go: a record for each fork by a watched process, each exec on the machine, and each exit of a
 * watched process.
 *
 * Cost: about 0.2 us for each fork, exec and exit of the machine. Caveats: the exit code is not in the tracepoint; user
 * space reads it from a pidfd. Records that found no room are counted in node_counters[0].
 */
enum { FORK = 1, EXEC = 2, EXIT = 3 };
#define CLONE_THREAD 0x10000

struct lifecycle {
    u64 time_ns;
    u32 kind;
    u32 pid;
    u32 parent;
    u32 unused;
};
BPF_RINGBUF_OUTPUT(lifecycles, 16);

static __always_inline void report(u32 kind, u32 pid, u32 parent) {
    struct lifecycle *record = lifecycles.ringbuf_reserve(sizeof(struct lifecycle));
    if (!record) {
        int index = 0;
        u64 *lost = node_counters.lookup(&index);
        if (lost)
            __sync_fetch_and_add(lost, 1);
        return;
    }
    record->time_ns = bpf_ktime_get_ns();
    record->kind = kind;
    record->pid = pid;
    record->parent = parent;
    record->unused = 0;
    lifecycles.ringbuf_submit(record, 0);
}

TRACEPOINT_PROBE(task, task_newtask) {
    u32 tgid = bpf_get_current_pid_tgid() >> 32, child = args->pid;
    struct process *process = processes.lookup(&tgid);
    if (!process)
        return 0;
    if (args->clone_flags & CLONE_THREAD) {
        struct thread fresh = {.since_ns = bpf_ktime_get_ns(), .tgid = tgid, .state = RUNNABLE};
        if (threads.update(&child, &fresh))
            __sync_fetch_and_add(&process->lost, 1);
    } else {
        report(FORK, child, tgid);
    }
    return 0;
}

TRACEPOINT_PROBE(sched, sched_process_exec) {
    report(EXEC, bpf_get_current_pid_tgid() >> 32, 0);
    return 0;
}

TRACEPOINT_PROBE(sched, sched_process_exit) {
    u64 id = bpf_get_current_pid_tgid();
    u32 tgid = id >> 32;
#ifdef HAVE_GROUP_DEAD
    if (!args->group_dead)
        return 0;
#else
    if (tgid != (u32)id)
        return 0;
#endif
    if (processes.lookup(&tgid))
        report(EXIT, tgid, 0);
    return 0;
}
