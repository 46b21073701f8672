"""BLAS on one thread: the mixture's matrices are small, and a second thread makes them slower, not faster."""

from __future__ import annotations

from functools import lru_cache

from threadpoolctl import threadpool_limits


@lru_cache(maxsize=1)
def pin_blas() -> None:
    """Keep every BLAS library that is loaded on one thread from now on; later calls do nothing.

    Process-wide on purpose: switching per call costs more than scoring a batch, and a number of threads that changes
    while another thread multiplies would make sums depend on timing.
    """
    threadpool_limits(1, user_api="blas")
