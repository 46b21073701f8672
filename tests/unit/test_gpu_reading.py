"""Readings of a GPU, and what lies between two of them."""

from eacgm.producers.gpu_reading import GpuReading, OnGpu, board_name, growth, home_gpus

SECOND = 1_000_000_000


def reading(uuid="a", second=0, totals=None, rates=None, memory=None):
    processes = None if memory is None else {pid: OnGpu(size, None) for pid, size in memory.items()}
    return GpuReading(uuid, 0, None, second * SECOND, totals=totals or {}, rates=rates or {}, processes=processes)


def test_counters_grow_from_one_reading_to_the_next():
    before, now = reading(totals={"x": 5.0, "y": 7.0}), reading(second=2, totals={"x": 9.0, "y": 3.0, "z": 1.0})
    # y went back, z is new: of neither is the growth known
    assert growth(now, before) == {"x": 4.0, "y": None, "z": None}
    assert growth(now, None) == {}


def test_a_rate_stands_in_for_the_time_between_the_readings():
    assert growth(reading(second=3, rates={"x": 10.0}), reading(second=1)) == {"x": 20.0}


def test_a_small_context_elsewhere_makes_no_home():
    gpus = [reading("a", memory={1: 300, 2: 9000}), reading("b", memory={1: 8000}), reading("c")]
    assert home_gpus(1, gpus) == ["b"]
    assert home_gpus(2, gpus) == ["a"]
    assert home_gpus(3, gpus) == []


def test_a_process_that_uses_several_gpus_alike_is_at_home_on_all():
    gpus = [reading("a", memory={1: 3000}), reading("b", memory={1: 8000}), reading("c", memory={1: None})]
    assert home_gpus(1, gpus) == ["a", "b", "c"]


def test_a_board_is_named_by_its_place_on_the_bus():
    assert (board_name((1, 0x3B, 0), "a"), board_name(None, "a")) == ("PCI:0001:3b:00", "a")
