"""The project's benchmarks: they measure and print, they never assert a time."""
