import numpy as np

from eacgm.producers import maps
from eacgm.producers.call_errors import ErrorAccount
from eacgm.producers.observation import CallColumns

FUNCTIONS = [
    ("", "", ""),
    ("cuda", "cudaMalloc", "cuda"),
    ("collective", "allreduce", "nccl"),
    ("cuda", "cudaMalloc", ""),
]


def collect(account, calls, *entries):
    keys = np.array([(7, function, code, 0) for function, code, _ in entries], dtype=maps.ERROR_KEY)
    account.collect(keys, np.array([total for *_, total in entries], dtype=np.uint64), calls)
    return list(zip(calls.error_row.tolist(), calls.error_code.tolist(), calls.error_count.tolist(), strict=True))


def called(*names):
    return CallColumns(layer=[layer for layer, _ in names], function=[function for _, function in names])


def test_errors_are_the_growth_of_each_code_and_negative_codes_stay_so():
    account = ErrorAccount(FUNCTIONS)
    calls = called(("collective", "allreduce"), ("cuda", "cudaMalloc"))
    assert collect(account, calls, (1, 2, 3), (1, -1, 1), (2, 6, 4)) == [(0, 6, 4), (1, -1, 1), (1, 2, 3)]
    assert collect(account, calls, (1, 2, 5), (1, -1, 1), (2, 6, 4)) == [(1, 2, 2)]
    assert collect(account, calls) == []


def test_functions_of_one_name_are_one_row():
    calls = called(("cuda", "cudaMalloc"))
    assert collect(ErrorAccount(FUNCTIONS), calls, (1, 2, 3), (3, 2, 4)) == [(0, 2, 7)]


def test_an_error_of_a_function_without_a_row_is_told_once_it_has_one():
    account = ErrorAccount(FUNCTIONS)
    assert collect(account, called(), (1, 2, 3)) == []
    assert collect(account, called(("cuda", "cudaMalloc")), (1, 2, 3)) == [(0, 2, 3)]
