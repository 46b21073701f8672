"""Recorded events give the frames that they gave before.

Where a change is meant, write the frames anew: ``EACGM_WRITE_GOLDEN=1 pytest tests/golden`` and read the difference.
"""

import json
import os
from pathlib import Path

import numpy as np

from eacgm.events import FrameEvent
from eacgm.schemas.recording import RecordingReader
from eacgm.streams.replay import replay

HERE = Path(__file__).parent
FRAMES = HERE / "frames.json"


def described(frame):
    return {
        "start_ns": frame.start_ns,
        "phase": frame.phase,
        "coverage": round(frame.coverage, 9),
        "late": frame.late,
        "ranks": frame.ranks.tolist(),
        "present": frame.present,
        "nodes": frame.nodes,
        "features": {
            name: [None if np.isnan(v) else float(f"{v:.9g}") for v in frame.values[:, at].tolist()]
            for at, name in enumerate(frame.features)
        },
    }


def test_a_recorded_job_gives_the_frames_it_gave_before():
    found = [described(e) for e in replay(RecordingReader(HERE / "recording")) if isinstance(e, FrameEvent)]
    if os.environ.get("EACGM_WRITE_GOLDEN"):
        FRAMES.write_text("[\n" + ",\n".join(json.dumps(frame) for frame in found) + "\n]\n")
    assert found == json.loads(FRAMES.read_text())
