import pytest

from eacgm.cli.destination import new_folder
from eacgm.errors import InputError


def test_the_folder_appears_complete_or_not_at_all(tmp_path):
    out = tmp_path / "deep" / "out"
    with new_folder(out) as folder:
        (folder / "file").write_text("x")
        assert not out.exists()
    assert (out / "file").read_text() == "x"
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_failure_leaves_nothing_behind(tmp_path):
    def fill():
        with new_folder(tmp_path / "out") as folder:
            (folder / "file").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_filled(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with new_folder(out) as folder:
        (folder / "file").write_text("x")
    assert (out / "file").exists()


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "mine").write_text("precious")
    for occupied in (tmp_path, tmp_path / "mine"):
        with pytest.raises(InputError, match="nothing is overwritten"), new_folder(occupied):
            pass
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_place_that_cannot_be_written_is_our_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be made"), new_folder(tmp_path / "file" / "out"):
        pass
