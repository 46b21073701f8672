/* The kernel options that BCC's own headers ask for. */
#define CONFIG_BPF_SYSCALL 1
#define CONFIG_64BIT 1
#if defined(__x86_64__)
#define CONFIG_X86_64 1
#elif defined(__aarch64__)
#define CONFIG_ARM64 1
#endif
