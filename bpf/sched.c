/*
 * What the scheduler does with the threads of watched processes.
 *
 * Measures, per thread: nanoseconds running, runnable but waiting for a CPU (after a wake-up, after preemption, and
 * while a cgroup quota keeps it off), sleeping, in uninterruptible sleep, stopped; and the part of the sleep that lies
 * outside every traced call. Threads that are off the CPU for long are seen too: user space adds now - since_ns.
 * Cost: two to three map look-ups at every context switch of the whole machine, about 0.1-0.2 us.
 * Caveats: running includes what a hypervisor steals, which a process's CPU time does not. Threads that exist when
 * watching begins are entered by user space from /proc.
 */
static __always_inline void enter_state(struct thread *thread, u64 now, u32 state) {
    u64 spent = now - thread->since_ns;
    u32 old = thread->state & (N_TIMES - 1);
    if ((s64)spent > 0) {
        thread->time_ns[old] += spent;
        if ((old == SLEEPING || old == UNINTERRUPTIBLE) && thread->outer_sp == 0)
            thread->time_ns[BLOCKED] += spent;
    }
    thread->since_ns = now;
    thread->state = state;
}

/* fold a thread that has ended into its process */
static __always_inline void depart(u32 tid, struct thread *thread) {
    u32 tgid = thread->tgid;
    struct departed none = {};
    struct departed *sum = departed.lookup_or_try_init(&tgid, &none);
    if (sum) {
#pragma unroll
        for (int i = 0; i < N_TIMES; i++)
            __sync_fetch_and_add(&sum->time_ns[i], thread->time_ns[i]);
    }
    threads.delete(&tid);
}

/* prev_state as sched_switch prints it: 0 or 0x100 runnable, 1 S, 2 D, 4 T, 8 t, 0x10 X, 0x20 Z, 0x80 I */
static __always_inline u32 state_of(long prev_state) {
    if ((prev_state & 0xff) == 0)
        return RUNNABLE;
    if (prev_state & 0x2)
        return UNINTERRUPTIBLE;
    if (prev_state & 0xc)
        return STOPPED;
    return SLEEPING;
}

TRACEPOINT_PROBE(sched, sched_switch) {
    u64 now = bpf_ktime_get_ns();
    u64 id = bpf_get_current_pid_tgid();
    u32 tgid = id >> 32, prev = id, next = args->next_pid;
    struct process *process = tgid ? processes.lookup(&tgid) : NULL;
    if (process) {
        long prev_state = args->prev_state;
        struct thread *thread = threads.lookup(&prev);
        if (!thread && !(prev_state & 0x30)) {
            struct thread fresh = {.since_ns = now, .tgid = tgid, .state = state_of(prev_state)};
            if (threads.update(&prev, &fresh))
                __sync_fetch_and_add(&process->lost, 1);
        } else if (thread) {
            enter_state(thread, now, state_of(prev_state));
            thread->tgid = tgid;
            if (prev_state & 0x30)
                depart(prev, thread);
        }
    }
    struct thread *thread = next ? threads.lookup(&next) : NULL;
    if (thread)
        enter_state(thread, now, RUNNING);
    return 0;
}

TRACEPOINT_PROBE(sched, sched_wakeup) {
    u32 tid = args->pid;
    struct thread *thread = threads.lookup(&tid);
    if (thread && thread->state != RUNNING && thread->state != RUNNABLE)
        enter_state(thread, bpf_ktime_get_ns(), RUNNABLE);
    return 0;
}
