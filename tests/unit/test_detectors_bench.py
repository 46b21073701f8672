import numpy as np
import pytest

from eacgm.bench.detectors import DETECTORS, run
from eacgm.bench.mixture import SIZES
from eacgm.bench.mixture import run as run_speed
from eacgm.errors import InputError, UsageError


def save(path, **arrays):
    np.savez(path, **arrays)


def test_every_detector_but_chance_finds_broken_correlations(tmp_path):
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(2, 6))
    train = rng.normal(size=(1500, 2)) @ factor + 0.1 * rng.normal(size=(1500, 6))
    test = rng.normal(size=(900, 2)) @ factor + 0.1 * rng.normal(size=(900, 6))
    label = np.zeros(900, dtype=np.uint8)
    for start in (200, 500, 700):
        label[start : start + 15] = 1
        test[start : start + 15, rng.integers(6)] += 4.0
    save(tmp_path / "server.npz", train=train, test=test, label=label)
    rows = run(tmp_path)
    means = {row["detector"]: row["average_precision"] for row in rows if row["data"] == "mean"}
    assert set(means) == set(DETECTORS)
    assert means["random"] < 0.15
    assert min(means["online mixture"], means["static mixture"], means["one Gaussian"], means["PCA"]) > 0.9


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"train": np.zeros((5, 2)), "test": np.zeros((5, 2))}, "label"),
        ({"train": np.zeros((5, 2)), "test": np.zeros((5, 3)), "label": np.zeros(5)}, "expected"),
        ({"train": np.zeros((5, 2)), "test": np.zeros((5, 2)), "label": np.zeros(4)}, "expected"),
    ],
)
def test_file_without_the_data_is_named(tmp_path, arrays, words):
    save(tmp_path / "odd.npz", **arrays)
    with pytest.raises(InputError, match=rf"odd\.npz: .*{words}"):
        run(tmp_path)


def test_folder_without_files_and_no_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"no \.npz file"):
        run(tmp_path)
    with pytest.raises(UsageError, match="no folder"):
        run(None)


def test_text_with_the_name_of_an_array_file_is_refused(tmp_path):
    (tmp_path / "text.npz").write_text("not an archive")
    with pytest.raises(InputError, match=r"text\.npz: cannot be read"):
        run(tmp_path)


def test_speed_is_measured_for_every_size():
    rows = run_speed(seconds_per_size=0.02)
    assert [(row["features"], row["components"], row["batch_rows"]) for row in rows] == list(SIZES)
    assert all(row["score_learn_rows_per_second"] > 0 for row in rows)
