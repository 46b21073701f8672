import pytest

from eacgm.config import RANGES, Config, load
from eacgm.errors import ConfigError


def test_every_setting_has_a_range_that_holds_its_default():
    config = Config()
    for key, (low, high) in RANGES.items():
        room, name = key.split(".")
        assert low <= getattr(getattr(config, room), name) <= high


def test_words_win_over_the_file(tmp_path):
    file = tmp_path / "eacgm.toml"
    file.write_text("[detect]\nhang_seconds = 9\nwarmup_windows = 50\n")
    config = load(file, ["detect.hang_seconds=12.5"])
    assert (config.detect.hang_seconds, config.detect.warmup_windows) == (12.5, 50)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("detect.hang_seconds", "has no value"),
        ("detect.hangs=1", "unknown setting"),
        ("window.size_ms=1.5", "expected a int from 100"),
        ("detect.hang_seconds=nan", "expected a float from 1"),
        ("mixture.max_components=64", "from 1 to 32"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(setting, reason):
    with pytest.raises(ConfigError, match=reason) as told:
        load(settings=[setting])
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("text", ["detect = 3", "[detect]\nhang_seconds = true", "[detect", "[walls]\nx = 1"])
def test_files_that_cannot_be_are_refused_with_their_name(tmp_path, text):
    file = tmp_path / "eacgm.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"eacgm\.toml"):
        load(file)


def test_a_persistence_that_no_window_can_reach_is_refused():
    with pytest.raises(ConfigError, match="persistence_windows is 6 of 5"):
        load(settings=["detect.persistence_windows=6"])
    assert load(settings=["detect.persistence_windows=6", "detect.persistence_of=9"]).detect.persistence_of == 9
