"""The compose file and its images, as far as can be said without a container engine."""

import json
import re
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

from eacgm.kafka import agent_readings
from eacgm.streams import worker_readings

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
BIN = Path(sys.executable).parent


def compose():
    return YAML(typ="safe").load(COMPOSE.read_text())


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_compose_file_is_what_the_specification_says():
    run(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


def test_the_linter_has_nothing_to_say_of_the_dockerfile():
    run(BIN / "hadolint", ROOT / "deploy" / "Dockerfile")


def test_every_service_is_pinned_looked_after_and_keeps_its_data():
    content = compose()
    volumes = set(content["volumes"])
    for name, service in content["services"].items():
        image = service["image"]
        assert image.startswith("eacgm-") or re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", image), image
        assert "restart" in service, name
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert source in volumes or source.startswith("/sys/") or (ROOT / source).exists(), mount
    looked_after = {name for name, service in content["services"].items() if "healthcheck" in service}
    assert looked_after >= {"kafka", "registry", "agent", "worker-1", "worker-2", "prometheus", "grafana"}


def test_the_agent_has_no_more_power_than_it_needs_and_workers_have_none():
    services = compose()["services"]
    for name in ("agent", "worker-1", "worker-2", "topics"):
        assert services[name]["cap_drop"] == ["ALL"], name
        assert services[name]["read_only"] is True, name
        assert not services[name].get("privileged"), name
    assert "SYS_ADMIN" not in services["agent"]["cap_add"]
    assert "cap_add" not in services["worker-1"]


def test_every_variable_has_a_line_in_the_example():
    used = set(re.findall(r"\$\{(\w+)[:-]", COMPOSE.read_text()))
    told = set(re.findall(r"^(\w+)=", (ROOT / ".env.example").read_text(), flags=re.MULTILINE))
    assert used == told


def test_the_commands_are_commands_of_ours():
    recipe = (ROOT / "deploy" / "Dockerfile").read_text()
    commands = [json.loads(words) for words in re.findall(r"^CMD (\[.*\])$", recipe, flags=re.MULTILINE)]
    commands.append(compose()["services"]["topics"]["command"])
    assert len(commands) == 3
    for command in commands:
        options = [word for word in command if word.startswith("--")]
        words = [word for word in command if re.fullmatch(r"[a-z]+", word)]
        done = subprocess.run(
            [sys.executable, "-m", "eacgm", *words, "--help"], capture_output=True, text=True, check=True
        )
        assert all(option in done.stdout for option in options), command


def test_dashboards_and_rules_ask_for_metrics_that_exist():
    sources = (worker_readings, agent_readings)
    names = {name for one in sources for name in re.findall(r'"(eacgm_\w+)"', Path(one.__file__).read_text())}
    told = names | {f"{name}_total" for name in names}
    asked = (ROOT / "deploy" / "rules.yml").read_text()
    for path in (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"):
        panels = json.loads(path.read_text())["panels"]
        asked += " ".join(target["expr"] for panel in panels for target in panel["targets"])
    asked_names = set(re.findall(r"\beacgm_\w+", asked))
    assert asked_names
    assert asked_names <= told, asked_names - told


def test_what_runs_in_the_images_is_a_part_of_what_is_tested():
    pinned = set(re.findall(r"^\S+==\S+", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE))
    in_images = set(re.findall(r"^\S+==\S+", (ROOT / "requirements-run.lock").read_text(), flags=re.MULTILINE))
    assert in_images <= pinned
    assert not any(line.startswith(("pytest=", "mypy=", "ruff=")) for line in in_images)
