/* The registers of a traced thread, by the kernel's field names. arm64 is untested. */
#ifndef EACGM_UAPI_LINUX_PTRACE_H
#define EACGM_UAPI_LINUX_PTRACE_H

#include <linux/types.h>

#if defined(__x86_64__)
struct pt_regs {
    unsigned long r15, r14, r13, r12, bp, bx;
    unsigned long r11, r10, r9, r8;
    unsigned long ax, cx, dx, si, di;
    unsigned long orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__aarch64__)
struct user_pt_regs {
    __u64 regs[31];
    __u64 sp;
    __u64 pc;
    __u64 pstate;
};
struct pt_regs {
    union {
        struct user_pt_regs user_regs;
        struct {
            __u64 regs[31];
            __u64 sp;
            __u64 pc;
            __u64 pstate;
        };
    };
};
#else
#error "only x86-64 and arm64 are known"
#endif

#endif
