"""``eacgm run``: agent and pipeline in one process, until it is told to stop."""

from __future__ import annotations

import queue
import sys
from pathlib import Path
from typing import Any

import click

from eacgm.cli.live import LiveView, Numbers, print_alert
from eacgm.cli.options import config_options, job_name, json_option, probes, watching_options
from eacgm.cli.stopping import StopOrder, stopped_by_signals
from eacgm.config import Config
from eacgm.events import AlertEvent, Event

#: the view is refreshed and the clock told this often
TICK_SECONDS = 0.5


@click.command()
@click.option("--record", type=click.Path(path_type=Path), metavar="DIR", help="Keep what is seen in a new folder.")
@click.option("--job", callback=job_name, metavar="NAME", help="The name of jobs that tell none.")
@click.option(
    "--interval-ms", type=click.IntRange(100, 60_000), default=1000, show_default=True, help="Of one reading."
)
@watching_options
@config_options
@json_option
def command(
    record: Path | None,
    job: str | None,
    interval_ms: int,
    cpu_budget: float,
    torch_ops: str,
    config: Config,
    as_json: bool,
) -> int:
    """Watch all jobs of this machine, print alerts as they come, until Ctrl-C or SIGTERM.

    Ranks are found by themselves, also those that start later. Alerts go to standard output, one line each; live
    numbers go to standard error. Without eBPF only what /proc tells is watched; `eacgm doctor` says how to mend that.

    \b
    Example:
      eacgm run --record /var/tmp/monday
      eacgm run --json >> alerts.jsonl
    """  # noqa: D301 - click reads the backspace as: keep these lines
    from eacgm.producers.privileges import confine_process, foreign

    confine_process(["CAP_DAC_OVERRIDE"] if foreign(record) else [])
    with stopped_by_signals() as stop, LiveView(sys.stderr) as view:
        Watch(view, as_json=as_json).run(
            stop, record, config, interval_ms=interval_ms, job=job, cpu_percent=cpu_budget, probes=probes(torch_ops)
        )
    return 0


class Watch:
    """The agent's thread feeds the pipeline; this one shows what comes of it."""

    def __init__(self, view: LiveView, *, as_json: bool) -> None:
        self._view = view
        self._as_json = as_json
        self._numbers = Numbers()
        self._alerts: queue.SimpleQueue[AlertEvent] = queue.SimpleQueue()

    def run(self, stop: StopOrder, record: Path | None, config: Config, **watching: Any) -> None:
        """Watch until ``stop`` is set, then close every window and print what follows from it.

        ``watching`` is for the agent.
        """
        from eacgm.producers.agent import Agent
        from eacgm.producers.agent_thread import AgentThread
        from eacgm.schemas.recording import RecordingWriter
        from eacgm.streams.embedded import EmbeddedShell

        recorder = None if record is None else RecordingWriter(record)
        with EmbeddedShell(config, recorder=recorder, callbacks=[self._see_output]) as shell:
            self._shell = shell
            agent = Agent(self._publish, **watching)
            if agent.failure is not None:
                self._view.say(f"without probes: {agent.failure}; only what /proc tells is watched", "yellow")
            with AgentThread(agent) as thread:
                self._view.say("watching; Ctrl-C ends it" + ("" if record is None else f"; recording to {record}"))
                while not stop.wait(TICK_SECONDS) and not thread.failed.is_set():
                    shell.tick()
                    self._print_alerts()
                    found = len(agent.processes)
                    self._view.show(self._numbers, f"watching {found} processes" if found else "no rank found yet")
        self._print_alerts()
        self._view.say(
            f"{self._numbers.n_events:,} events, {self._numbers.n_windows:,} windows, {self._numbers.n_lost:,} lost"
        )

    def _publish(self, event: Event) -> None:
        self._numbers.see_input(event)
        self._shell.publish(event)

    def _see_output(self, event: Event) -> None:
        """Take note of a frame or an alert; called by the pipeline, under its lock."""
        self._numbers.see_output(event)
        if event.job in self._numbers.frames:
            self._numbers.scores[event.job] = self._shell.pipeline.scores(event.job).tolist()
        if isinstance(event, AlertEvent):
            self._alerts.put(event)

    def _print_alerts(self) -> None:
        while not self._alerts.empty():
            print_alert(self._alerts.get(), as_json=self._as_json)
