"""``eacgm topics``: the topics on a Kafka cluster, made and checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from eacgm.cli.kafka_options import kafka_options
from eacgm.cli.options import json_option
from eacgm.cli.output import note, print_json

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from eacgm.kafka.connection import Connection
    from eacgm.kafka.topics import Difference, Topic

PARTITIONS = 12


@click.group()
def command() -> None:
    """Create eACGM's topics on a Kafka cluster, or check them.

    All topics have the same number of partitions, so that the messages of one job meet at one worker.

    \b
    Example:
      eacgm topics create --bootstrap kafka:9092 --partitions 12
      eacgm topics check --bootstrap kafka:9092 --partitions 12
    """  # noqa: D301 - click reads the backspace as: keep these lines


def _topic_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--worker", default=None, help="Name of the workers' group; default eacgm-worker."),
        click.option(
            "--replicas", type=click.IntRange(1), help="Copies of each partition; default 3, or as many as brokers."
        ),
        click.option(
            "--partitions", type=click.IntRange(1, 10_000), default=PARTITIONS, show_default=True, help="Of each topic."
        ),
    ):
        function = option(function)
    return json_option(kafka_options(function))


@command.command()
@_topic_options
@click.option("--alter", is_flag=True, help="Also change what exists and differs.")
def create(
    connection: Connection, partitions: int, replicas: int | None, worker: str | None, alter: bool, as_json: bool
) -> int:
    """Create what is missing; what exists is changed only with --alter.

    With a registry the schemas are registered too, and incompatible ones are refused from then on.

    \b
    Example:
      eacgm topics create --bootstrap kafka:9092 --partitions 12 --registry http://registry:8080/apis/ccompat/v7
    """  # noqa: D301 - as above
    from eacgm.kafka import topics

    admin, wanted = _connect(connection, partitions, replicas, worker)
    created = topics.create(admin, wanted)
    for name in created:
        print_json({"topic": name, "done": "created"}) if as_json else click.echo(f"{name}: created")
    left = [one for one in topics.differences(admin, wanted) if one.topic not in created]
    if alter:
        before = left
        left = topics.alter(admin, left)
        for one in before:
            if one not in left:
                record = {"topic": one.topic, "done": "altered", "what": one.what, "value": one.expected}
                print_json(record) if as_json else click.echo(f"{one.topic}: {one.what} is now {one.expected}")
    _register(connection, as_json)
    _tell(left, as_json)
    if left and not alter:
        note("what exists was left as it is; --alter changes it")
    return 1 if left else 0


@command.command()
@_topic_options
def check(connection: Connection, partitions: int, replicas: int | None, worker: str | None, as_json: bool) -> int:
    """Tell how the cluster's topics and schemas differ, one line each; exit status 1 if they do.

    \b
    Example:
      eacgm topics check --bootstrap kafka:9092 --partitions 12
    """  # noqa: D301 - as above
    from eacgm.kafka import topics

    admin, wanted = _connect(connection, partitions, replicas, worker)
    found = [*topics.differences(admin, wanted), *_schema_differences(connection)]
    _tell(found, as_json)
    if not found:
        note(f"{len(wanted)} topics are as they should be")
    return 1 if found else 0


def _connect(
    connection: Connection, partitions: int, replicas: int | None, worker: str | None
) -> tuple[AdminClient, tuple[Topic, ...]]:
    from eacgm.kafka import clients, topics
    from eacgm.kafka.complaints import Complaints

    complaints = Complaints(connection)
    admin = clients.open_admin(connection, complaints)
    metadata = clients.reach(admin, complaints)
    copies = replicas or topics.usual_replicas(len(metadata.brokers))
    return admin, topics.wanted(partitions, copies, worker or topics.WORKER)


def _register(connection: Connection, as_json: bool) -> None:
    from eacgm.schemas.registry import Registry, register_all, subject

    if connection.registry is None:
        return
    registry = Registry(connection.registry)
    try:
        for topic, schema_id in register_all(registry).items():
            record = {"subject": subject(topic), "done": "registered", "schema_id": schema_id}
            print_json(record) if as_json else click.echo(f"{subject(topic)}: schema {schema_id}")
    finally:
        registry.close()


def _schema_differences(connection: Connection) -> list[Difference]:
    from eacgm.kafka.topics import Difference
    from eacgm.schemas import schemas
    from eacgm.schemas.registry import Registry
    from eacgm.schemas.writer import writer_of

    if connection.registry is None:
        return []
    registry, found = Registry(connection.registry), []
    try:
        for topic in schemas():
            text = registry.registered(topic)
            if text is None:
                found.append(Difference(topic, "schema", "not registered", "ours (eacgm topics create)"))
            elif not writer_of(text).same:
                found.append(Difference(topic, "schema", "another version", "ours (eacgm topics create)"))
    finally:
        registry.close()
    return found


def _tell(found: list[Difference], as_json: bool) -> None:
    for one in found:
        if as_json:
            print_json({"topic": one.topic, "what": one.what, "found": one.found, "expected": one.expected})
        else:
            click.echo(str(one))
