"""The C programs that run in the kernel, and the stub headers that BCC compiles them against."""
