import io

import numpy as np
from rich.console import Console

from eacgm.cli.live import LiveView, Numbers
from eacgm.events import FrameEvent, ProcessEvent


def one_window():
    numbers = Numbers()
    for rank in range(3):
        numbers.see_input(ProcessEvent(job="j", rank=rank, node="a", start_ns=0, end_ns=10**9, world_size=4))
    numbers.see_output(
        FrameEvent(
            job="j",
            start_ns=0,
            end_ns=10**9,
            ranks=np.arange(3),
            present=[True, True, False],
            nodes=["a"] * 3,
            groups=[""] * 3,
            features=["step_seconds"],
            values=np.array([[0.125], [np.nan], [0.5]]),
        )
    )
    numbers.scores["j"] = [1.25, np.nan, 3.0]
    return numbers


def test_table_tells_ranks_dashes_and_silence_by_the_given_clock():
    seconds = iter([100.0, 107.0, 107.0])
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    view = LiveView(io.StringIO(), console=console, clock=lambda: next(seconds))
    view.show(one_window(), "watching")
    console.print(view.table())
    title, _, _, *ranks, caption = [line.split() for line in console.file.getvalue().strip().splitlines()]
    assert title == ["7", "s", "watching"]
    assert ranks == [
        ["j", "0", "125", "-", "-", "-", "-", "-", "1.2"],
        ["j", "1", "-", "-", "-", "-", "-", "-", "-"],
        ["j", "2", "silent", "-", "-", "-", "-", "-", "3.0"],
    ]
    assert " ".join(caption).startswith("ranks 2/4 events/s 0 calls 0 lost 0 windows 1")


def test_elsewhere_than_on_a_terminal_lines_are_plain_and_every_few_seconds():
    seconds = iter([0.0, 1.0, 6.0, 6.0, 7.0])
    stream = io.StringIO()
    view = LiveView(stream, clock=lambda: next(seconds))
    for _ in range(3):
        view.show(one_window(), "watching")
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("   6 s  watching: ranks 2/4,")
    assert "step ms 0:125 1:- 2:500 | score 0:1.2 1:- 2:3.0" in line


def silent_or_not(job, second, *, present):
    ranks = np.arange(2)
    return FrameEvent(
        job=job,
        start_ns=second * 10**9,
        end_ns=(second + 1) * 10**9,
        ranks=ranks,
        present=[present] * 2,
        nodes=["a"] * 2,
        groups=[""] * 2,
        features=["step_seconds"],
        values=np.full((2, 1), 0.1),
    )


def test_a_job_that_has_ended_is_no_longer_shown_after_a_minute():
    numbers = Numbers()
    numbers.see_output(silent_or_not("gone", 0, present=True))
    for second in range(1, 200):
        numbers.see_output(silent_or_not("gone", second, present=False))
        numbers.see_output(silent_or_not("here", second, present=True))
        assert ("gone" in numbers.frames) == (second < 60)
    assert numbers.ranks_seen() == "2/2"
    numbers.see_output(silent_or_not("gone", 200, present=True))
    assert numbers.ranks_seen() == "4/4"


def test_a_line_tells_few_jobs_and_counts_the_others():
    numbers = Numbers()
    for number in range(30):
        numbers.see_output(silent_or_not(f"j{number}", 0, present=True))
    seconds = iter([0.0, 6.0, 6.0, 6.0, 6.0])
    stream = io.StringIO()
    LiveView(stream, clock=lambda: next(seconds)).show(numbers, "watching")
    (line,) = stream.getvalue().splitlines()
    assert line.count("step ms") == 4
    assert line.endswith("| 26 more jobs")
