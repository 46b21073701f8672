"""The guide keeps up with the program: every command, option, cause and setting is told in docs/."""

import re
from importlib import import_module
from pathlib import Path

import click
import pytest

from eacgm.cli.main import COMMANDS
from eacgm.config import RANGES, Config
from eacgm.streams.diagnose import CONSEQUENCES

DOCS = Path(__file__).parents[2] / "docs"
#: commands whose page has another name
PAGES = {"topics": "kafka", "publish": "reanalysis", "record": "reanalysis"}
#: options of many commands, told once
SHARED = {"--config", "--set", "--json", "--help"} | set(
    re.findall(r"--[a-z-]+", (DOCS / "kafka.md").read_text().split("## Topics")[0])
)


def page_of(command):
    return (DOCS / f"{PAGES.get(command, command)}.md").read_text()


def options_of(command):
    for child in command.commands.values() if isinstance(command, click.Group) else [command]:
        for parameter in child.params:
            if isinstance(parameter, click.Option):
                yield max(parameter.opts, key=len)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_that_tells_its_options(command):
    page = page_of(command)
    assert f"eacgm {command}" in page
    for option in set(options_of(import_module(COMMANDS[command].module).command)) - SHARED:
        assert option in page, option


def test_every_setting_stands_in_the_guide_with_its_default_and_range():
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| (.+? \| .+?) \|", (DOCS / "settings.md").read_text(), re.MULTILINE))
    assert set(rows) == set(RANGES)
    for key, (low, high) in RANGES.items():
        room, name = key.split(".")
        default, least, most = map(float, re.split(r" \| | to ", rows[key]))
        assert (default, least, most) == (getattr(getattr(Config(), room), name), low, high), key


def test_every_cause_stands_in_the_guide():
    told = set(re.findall(r"^\| `([a-z_]+)` \|", (DOCS / "causes.md").read_text(), re.MULTILINE))
    assert told == set(CONSEQUENCES) | {"telemetry_lost", "unknown"}


def test_links_between_pages_lead_somewhere():
    root = DOCS.parent
    for page in [root / "README.md", root / "CONTRIBUTING.md", *DOCS.rglob("*.md")]:
        for name in re.findall(r"\bdocs/[\w/.-]+\.(?:md|svg)", page.read_text()):
            assert (root / name).is_file(), (page.name, name)
        for number in re.findall(r"docs/decisions/(\d{4})\b", page.read_text()):
            assert list(DOCS.glob(f"decisions/{number}-*.md")), (page.name, number)
