"""The demo performed live: job, agent and pipeline side by side, the fault planted and undone on the play's cues."""

from __future__ import annotations

import json
import queue
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from eacgm.config import Config
from eacgm.demo.faults import Fault, Pause, Slow, SlowData
from eacgm.demo.interpreters import Interpreter
from eacgm.demo.play import Act, Cue, Play, Verdict
from eacgm.demo.screen import Screen
from eacgm.demo.training import TrainingJob
from eacgm.errors import UnsupportedError
from eacgm.events import AlertEvent, Event, FrameEvent
from eacgm.producers.agent import Agent
from eacgm.producers.agent_thread import AgentThread
from eacgm.schemas.recording import RecordingWriter
from eacgm.streams.embedded import EmbeddedShell

N_RANKS = 4
#: the stage hands look this often
POLL_SECONDS = 0.1
#: a slow rank keeps this share of the CPU that it used in health
SLOW_SHARE = 0.3
MIN_SLOW_RATIO = 0.08
#: a late batch is late by this many healthy steps, but by no less than MIN_DELAY_SECONDS
DELAY_STEPS = 2.0
MIN_DELAY_SECONDS = 0.1
#: beside a recording, what was done to the job and when
PROGRAMME = "demo.json"


@dataclass(frozen=True, slots=True)
class Performance:
    """What is asked of a live demo; ``record`` is a new folder for a recording, or None."""

    fault: str
    rank: int
    limit_seconds: float
    config: Config
    interpreter: Interpreter
    record: Path | None = None


class Stage:
    """Performs one live demo and shows it on a screen."""

    def __init__(self, performance: Performance, screen: Screen) -> None:
        self._asked = performance
        self._screen = screen
        #: what the pipeline put out, with its job's newest scores
        self._outputs: queue.SimpleQueue[tuple[Event, list[float]]] = queue.SimpleQueue()
        self._frame: FrameEvent | None = None
        self._description = ""
        recorder = None if performance.record is None else RecordingWriter(performance.record)
        self._shell = EmbeddedShell(performance.config, recorder=recorder, callbacks=[self._keep])

    def perform(self) -> Verdict:
        """Run the whole play; whatever ends it, the job ends and the fault is undone.

        Raises ``UnsupportedError`` before anything is started if probes cannot be attached, and ``EacgmError`` if the
        job fails.
        """
        with ExitStack() as stack:
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eacgm-demo-")))
            job = TrainingJob(self._asked.interpreter, logs, n_ranks=N_RANKS)
            agent = Agent(self._publish, only_jobs={job.name})
            stack.callback(agent.close)
            stack.callback(self._shell.finish)
            if agent.failure is not None:
                raise UnsupportedError(agent.failure)
            stack.enter_context(job)
            play = Play(
                self._asked.fault,
                self._asked.rank,
                N_RANKS,
                self._asked.config.detect.warmup_windows,
                self._asked.limit_seconds,
                started_ns=time.time_ns(),
            )
            self._screen.say(
                f"job started: {N_RANKS} ranks, DistributedDataParallel over gloo, torch "
                f"{self._asked.interpreter.torch_version} in {self._asked.interpreter.path}"
            )
            with AgentThread(agent) as thread:
                self._follow(play, job, thread)
            self._shell.finish()
            self._take_outputs(play)
            if self._asked.record is not None:
                write_programme(self._asked.record, play, self._description, self._asked.interpreter)
            return play.verdict()

    def _follow(self, play: Play, job: TrainingJob, agent: AgentThread) -> None:
        fault: Fault | None = None
        try:
            while (cue := play.cue(time.time_ns())) is not Cue.END and not agent.failed.is_set():
                job.check()
                if cue is Cue.PLANT:
                    fault = self._fault(job)
                    fault.start()
                    play.planted(time.time_ns())
                    self._description = fault.description
                    self._screen.say(f"FAULT: rank {play.rank} is now {fault.description}")
                elif cue is Cue.STOP and fault is not None:
                    fault.stop()
                    play.stopped(time.time_ns())
                    self._screen.say("fault undone; waiting for the incident to resolve")
                time.sleep(POLL_SECONDS)
                self._take_outputs(play)
                self._screen.show(activity(play, job.progress()))
        finally:
            if fault is not None:
                fault.stop()

    def _publish(self, event: Event) -> None:
        self._screen.see_input(event)
        self._shell.publish(event)

    def _keep(self, event: Event) -> None:
        self._outputs.put((event, self._shell.pipeline.scores(event.job).tolist()))

    def _take_outputs(self, play: Play) -> None:
        while not self._outputs.empty():
            event, scores = self._outputs.get()
            self._screen.see_output(event, scores)
            if isinstance(event, FrameEvent):
                self._frame = event
                before = play.act
                play.see_frame(event)
                if before is Act.START and play.act is Act.WARM_UP:
                    self._screen.say(warm_up_line(play))
            elif isinstance(event, AlertEvent):
                show_alert(self._screen, play, event, time.time_ns())

    def _fault(self, job: TrainingJob) -> Fault:
        """Return the fault, measured out by what the job does in health."""
        rank, pid = self._asked.rank, job.pids[self._asked.rank]
        match self._asked.fault:
            case "slow":
                used = self._reading("cpu_seconds", 0.4)
                return Slow(pid, min(0.5, max(MIN_SLOW_RATIO, SLOW_SHARE * used)), job.announce_cgroup)
            case "pause":
                return Pause(pid)
            case _:
                delay = max(MIN_DELAY_SECONDS, DELAY_STEPS * self._reading("step_seconds", 0.1))
                return SlowData(lambda seconds: job.delay_data(rank, seconds), delay)

    def _reading(self, feature: str, otherwise: float) -> float:
        """Return the mean over ranks of a feature in the newest frame that tells it."""
        if self._frame is None or feature not in self._frame.features:
            return otherwise
        column = self._frame.values[:, self._frame.features.index(feature)]
        told = column[column == column]
        return float(told.mean()) if len(told) else otherwise


def activity(play: Play, progress: tuple[int, float] | None) -> str:
    """Return what the play is waiting for, in a few words."""
    training = "" if progress is None else f" (training: step {progress[0]}, loss {progress[1]:.2f})"
    match play.act:
        case Act.START:
            return "waiting for all ranks" + training
        case Act.WARM_UP if play.warmup_left:
            return f"warming up, {play.warmup_left} windows to go" + training
        case Act.WARM_UP:
            return "watching" + training
        case Act.FAULT:
            return "fault planted" + training
        case _:
            return "fault undone" + training


def warm_up_line(play: Play) -> str:
    """Return the line that says what the warm-up waits for."""
    return f"all {play.n_ranks} ranks seen; the detector now learns what is usual: {play.warmup_left} windows to go"


def show_alert(screen: Screen, play: Play, alert: AlertEvent, now_ns: int) -> None:
    """Hand an alert to the play and the screen."""
    play.see_alert(alert, now_ns)
    delay = None
    if alert.state == "open" and play.planted_ns is not None and play.stopped_ns is None:
        delay = (now_ns - play.planted_ns) / 1e9
    screen.alert(alert, delay)


def write_programme(folder: Path, play: Play, description: str, interpreter: Interpreter) -> None:
    """Write beside a recording what was done and when, so that it can be shown again."""
    programme = {
        "fault": play.fault,
        "rank": play.rank,
        "n_ranks": play.n_ranks,
        "description": description,
        "torch_version": interpreter.torch_version,
        "started_ns": play.started_ns,
        "planted_ns": play.planted_ns,
        "stopped_ns": play.stopped_ns,
    }
    (folder / PROGRAMME).write_text(json.dumps(programme, indent=1) + "\n", encoding="utf-8")
