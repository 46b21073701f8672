import click
import pytest
from click.testing import CliRunner

from eacgm.cli.options import config_options, instant, job_name, parse_instant_ns
from eacgm.errors import ConfigError


@pytest.fixture
def told():
    """A command with the common options, and what it was given."""
    given = {}

    @click.command()
    @click.option("--since", callback=instant)
    @click.option("--job", callback=job_name)
    @config_options
    def command(config, since, job):
        given.update(config=config, since=since, job=job)

    def run(*arguments):
        result = CliRunner().invoke(command, list(arguments), catch_exceptions=True)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return given, result

    return run


def test_without_options_the_defaults_hold(told):
    given, _ = told()
    assert given["config"].detect.hang_seconds == 4.0
    assert given["since"] is None


def test_a_setting_overrules_the_file_and_the_file_the_default(told, tmp_path):
    path = tmp_path / "eacgm.toml"
    path.write_text("[detect]\nhang_seconds = 9\nwarmup_windows = 50\n")
    given, _ = told("--set", "detect.hang_seconds=7", "--config", str(path))
    assert given["config"].detect.hang_seconds == 7.0
    assert given["config"].detect.warmup_windows == 50


@pytest.mark.parametrize("setting", ["detect.hang_seconds", "detect.nothing=1", "detect.hang_seconds=x"])
def test_a_setting_that_cannot_be_is_our_error(told, setting):
    with pytest.raises(ConfigError):
        told("--set", setting)


def test_a_config_file_that_is_not_there_is_our_error(told, tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        told("--config", str(tmp_path / "nothing.toml"))


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("120", 120),
        ("2026-01-01T00:00:00Z", 1_767_225_600),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600),
        ("2026-01-01", 1_767_225_600),
        ("1970-01-01T00:00:00.75Z", 0.75),
    ],
)
def test_a_moment_is_seconds_or_rfc_3339(text, expected_s):
    assert parse_instant_ns(text) == expected_s * 1e9


@pytest.mark.parametrize("text", ["yesterday", "nan", "inf", "", "2026-13-01"])
def test_other_words_are_no_moment(told, text):
    _, result = told("--since", text)
    assert result.exit_code == 2
    assert "expected RFC 3339 or seconds since 1970" in result.output


@pytest.mark.parametrize("name", ["", "  ", "a\x1b[31m", "two\nlines", "x" * 201, "\udcff"])
def test_a_job_that_no_line_can_name_is_wrong_usage(told, name):
    _, result = told("--job", name)
    assert result.exit_code == 2
    assert "is no name" in result.output


def test_a_job_may_be_named_in_any_script(told):
    given, _ = told("--job", "größe 模型")
    assert given["job"] == "größe 模型"
