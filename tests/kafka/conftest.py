"""Real brokers and a real registry, started once a session; what cannot be had is skipped with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeVar

import pytest
from local_kafka import Cluster, Registry, SecureBroker, UnavailableError, obstacle

Server = TypeVar("Server")


class OtherBroker:
    """The broker that EACGM_TEST_BOOTSTRAP names."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = obstacle()
    for item in items:
        if reason and item.get_closest_marker("kafka"):
            item.add_marker(pytest.mark.skip(reason=reason))


def started(start: Callable[[], Server]) -> Server:
    try:
        return start()
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster | OtherBroker]:
    """One broker without security, shared by all tests: use jobs, topics and groups of your own."""
    other = os.environ.get("EACGM_TEST_BOOTSTRAP")
    if other:
        yield OtherBroker(other)
        return
    broker = started(lambda: Cluster.start(tmp_path_factory.mktemp("broker")))
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker without security for the tests of one module, whose topics are set as these need them."""
    broker = started(lambda: Cluster.start(tmp_path_factory.mktemp("own")))
    yield broker
    broker.stop()


@pytest.fixture
def new_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    """Start brokers of the test's own, empty, to stop and kill: ``new_broker()`` or ``new_broker(3)``."""
    with ExitStack() as stack:

        def start(count: int = 1) -> Cluster:
            broker = started(lambda: Cluster.start(tmp_path_factory.mktemp("own"), count))
            stack.callback(broker.stop)
            return broker

        yield start


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers; who kills one starts it again before the test ends."""
    cluster = started(lambda: Cluster.start(tmp_path_factory.mktemp("cluster"), 3))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def sasl_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """One broker with TLS, SCRAM-SHA-512, OAUTHBEARER and ACLs."""
    broker = started(lambda: SecureBroker.start(tmp_path_factory.mktemp("secure")))
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A schema registry, shared by all tests."""
    registry = started(lambda: Registry.start(tmp_path_factory.mktemp("registry")))
    yield registry
    registry.stop()
