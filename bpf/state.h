/*
 * What all programs share: which processes are watched, what their threads are doing, what was lost.
 *
 * User space puts a process into `processes`; only then does anything count for it. All totals only grow, and user
 * space takes differences: nothing that a program adds while it is read can get lost.
 *
 * Caveats: no kernel structure is read, only tracepoint arguments, registers and helpers, so the programs do not
 * depend on the kernel's version.
 */
#include <uapi/linux/ptrace.h>

#define MAX_PROCESSES 4096
#define MAX_THREADS 32768
#define MAX_ROWS 8192
#define MAX_OPEN 16384

/* the stack pointer at a function's return is this much higher than at its entry */
#if defined(__x86_64__)
#define RETURN_SHIFT 8
#else
#define RETURN_SHIFT 0
#endif

/* a watched process: the thread in its step (backward), that call's stack pointer, and events lost */
struct process {
    u64 step_tid;
    u64 step_sp;
    u64 lost;
};
BPF_HASH(processes, u32, struct process, MAX_PROCESSES);

/* what a thread is doing; the numbers are indices into thread.time_ns */
enum { RUNNING, RUNNABLE, SLEEPING, UNINTERRUPTIBLE, STOPPED, BLOCKED, N_TIMES = 8 };

/*
 * since_ns: when it entered `state`. time_ns: nanoseconds in each state until then; [BLOCKED] is the part of SLEEPING
 * and UNINTERRUPTIBLE outside every traced call. outer_sp: stack pointer of the outermost traced call in flight, 0 if
 * none. settled_ns: when the last outermost call began or ended; older calls of this thread cannot be in flight.
 * family_sp: as outer_sp, of the calls of one family (calls.c), valid while `sheddings` is as it was.
 */
#define N_FAMILIES 2
struct thread {
    u64 since_ns;
    u64 time_ns[N_TIMES];
    u64 outer_sp;
    u64 settled_ns;
    u64 family_sp[N_FAMILIES];
    u64 sheddings;
    u32 tgid;
    u32 state;
};
BPF_HASH(threads, u32, struct thread, MAX_THREADS);

/* the summed times of threads that have ended, by process */
struct departed {
    u64 time_ns[N_TIMES];
};
BPF_HASH(departed, u32, struct departed, MAX_PROCESSES);

/* what was lost and cannot be laid to a watched process: [0] lifecycle records, [1] retransmits of unknown sockets */
BPF_ARRAY(node_counters, u64, 4);

/* the interval's number, set by user space: maxima are kept per interval */
BPF_ARRAY(interval, u64, 1);

/* how often probes were taken off, told by user space: calls in flight then never return for us */
BPF_ARRAY(sheddings, u64, 1);
