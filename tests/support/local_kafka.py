"""Real Kafka brokers and a real schema registry on free loopback ports, for tests."""

from __future__ import annotations

import base64
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from certificates import Certificates

JARS = Path(__file__).parents[2] / "tools" / "jars"
#: a start that takes longer has failed; loaded machines are slow
START_SECONDS = 90.0
USER, PASSWORD = "eacgm", "correct-horse"
#: may connect, may see nothing
STRANGER, STRANGER_PASSWORD = "stranger", "battery-staple"
ADMIN = "ANONYMOUS"


class StartError(Exception):
    """A broker or registry that should run here does not; tests fail with it."""


class UnavailableError(Exception):
    """Brokers or registries cannot be had here; the text says why."""


NO_JAVA = "no Java runtime; install openjdk-17-jre-headless, or run: make test"


def obstacle() -> str | None:
    """Return why no test on Kafka can run here, None if some can (as far as looking tells)."""
    return None if os.environ.get("EACGM_TEST_BOOTSTRAP") or shutil.which("java") else NO_JAVA


def jars(purpose: str) -> Path:
    """Return the folder of the jars of ``broker`` or ``registry``; raises ``UnavailableError``."""
    if not shutil.which("java"):
        raise UnavailableError(NO_JAVA)
    done = subprocess.run([JARS, purpose], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(done.stderr.strip() or f"tools/jars {purpose} failed")
    return Path(done.stdout.strip())


def free_ports(count: int) -> list[int]:
    """Return distinct ports of the loopback that nobody listens on.

    They lie below those that the kernel gives to outgoing connections: else one broker's connection takes the port
    that the next is about to listen on.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(range(12_000, 32_000), 1000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise StartError(f"of 1000 ports of the loopback fewer than {count} are free")


def listening(port: int) -> bool:
    """Return whether somebody accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def java(folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start a JVM that dies with us, whatever we die of; its output goes to ``folder/output.log``."""
    command = ["setpriv", "--pdeathsig", "KILL", "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *arguments]
    with (folder / "output.log").open("ab") as log:
        # a session of its own: Ctrl-C is for the tests, which then end the broker in order
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)


def end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """End one process that we started; kills it when it takes more than ten seconds."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def random_id() -> str:
    """Return an id as Kafka makes them; one beginning with a dash would read as an option of its tools."""
    number = uuid.uuid4()
    while number.bytes[0] >> 2 == 62:
        number = uuid.uuid4()
    return base64.urlsafe_b64encode(number.bytes).decode().rstrip("=")


@dataclass
class Node:
    """One broker (and controller): its folder, ports and process. It can be killed and started again in place."""

    number: int
    folder: Path
    jars: Path
    port: int
    controller_port: int
    memory: str = "512m"
    process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def class_path(self) -> str:
        return f"{self.jars / 'lib'}/*"

    def format(self, properties: str, cluster: str, arguments: list[str]) -> None:
        """Write the properties and make the log folder."""
        self.folder.mkdir(parents=True)
        (self.folder / "server.properties").write_text(properties)
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", self.class_path, "kafka.tools.StorageTool", "format"]
        command += ["-t", cluster, "-c", str(self.folder / "server.properties"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def launch(self) -> None:
        """Start the process without waiting."""
        settings = str(self.folder / "server.properties")
        heap = ["-Dlog4j2.level=WARN", f"-Xmx{self.memory}", "-XX:MaxDirectMemorySize=256m"]
        self.process = java(self.folder, [*heap, "-cp", self.class_path, "kafka.Kafka", settings])

    def wait(self) -> None:
        """Wait until the broker accepts connections; raises ``StartError`` with its last words."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            assert self.process is not None
            if self.process.poll() is not None:
                break
            if listening(self.port):
                return
            time.sleep(0.1)
        raise StartError(f"the broker did not start; its last words: {self.log()[-2000:]}")

    def log(self) -> str:
        path = self.folder / "output.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start (again), and wait until it listens."""
        (self.folder / "output.log").unlink(missing_ok=True)
        self.launch()
        self.wait()

    def stop(self) -> None:
        """Shut down in order."""
        if self.process is not None:
            end(self.process, signal.SIGTERM)

    def kill(self) -> None:
        """Kill with SIGKILL, as a machine dies."""
        if self.process is not None:
            end(self.process, signal.SIGKILL)


def common(node: Node, voters: str | None, replicas: int) -> str:
    """Return the properties that every broker of the tests has."""
    own = f"127.0.0.1:{node.controller_port}"
    quorum = f"controller.quorum.voters={voters}" if voters else f"controller.quorum.bootstrap.servers={own}"
    return f"""
node.id={node.number}
process.roles=broker,controller
controller.listener.names=CONTROLLER
{quorum}
log.dirs={node.folder / "data"}
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=4
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={min(2, replicas)}
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={min(2, replicas)}
share.coordinator.state.topic.num.partitions=4
default.replication.factor={replicas}
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=1000
message.max.bytes=16777216
replica.fetch.max.bytes=16777216
log.cleaner.dedupe.buffer.size=16777216
"""


def plain(node: Node) -> str:
    return f"""
listeners=PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
"""


@dataclass
class Cluster:
    """One or three nodes of one cluster; ``bootstrap`` names them all."""

    nodes: list[Node] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    def stop(self) -> None:
        """End all nodes; their data is of no more use, so none takes its time."""
        for node in self.nodes:
            node.kill()
            shutil.rmtree(node.folder, ignore_errors=True)

    @classmethod
    def start(cls, folder: Path, count: int = 1) -> Self:
        """Start ``count`` nodes and wait for them; raises ``UnavailableError``."""
        cluster = cls.make(folder, count)
        try:
            for node in cluster.nodes:
                node.launch()
            for node in cluster.nodes:
                node.wait()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @classmethod
    def make(cls, folder: Path, count: int = 1) -> Self:
        """Return ``count`` nodes that are ready to be launched; raises ``UnavailableError``."""
        lib = jars("broker")
        ports = free_ports(2 * count)
        memory = "512m" if count == 1 else "400m"
        pairs = enumerate(zip(ports[::2], ports[1::2], strict=True), start=1)
        nodes = [Node(number, folder / f"node{number}", lib, *pair, memory) for number, pair in pairs]
        voters = ",".join(f"{node.number}@127.0.0.1:{node.controller_port}" for node in nodes) if count > 1 else None
        identity = random_id()
        for node in nodes:
            node.format(common(node, voters, count) + plain(node), identity, [] if voters else ["--standalone"])
        return cls(nodes)


@dataclass
class SecureBroker:
    """A broker with SASL_SSL (SCRAM-SHA-512, OAUTHBEARER, client certificates) and ACLs.

    ``bootstrap`` is the secure listener; ``admin_bootstrap`` a plain one whose anonymous user may do everything.
    ``user`` may do everything too; ``stranger`` has no ACL, so he sees no topics.
    """

    node: Node
    admin_bootstrap: str
    certificates: Certificates
    user: str = USER
    password: str = PASSWORD
    stranger: str = STRANGER
    stranger_password: str = STRANGER_PASSWORD

    @property
    def bootstrap(self) -> str:
        return self.node.bootstrap

    def stop(self) -> None:
        self.node.kill()
        shutil.rmtree(self.node.folder, ignore_errors=True)

    @classmethod
    def start(cls, folder: Path) -> Self:
        """Start it and wait; raises ``UnavailableError``."""
        lib = jars("broker")
        port, admin, controller = free_ports(3)
        node = Node(1, folder / "node", lib, port, controller)
        broker = cls(node, f"127.0.0.1:{admin}", Certificates.make(folder / "certificates"))
        scram = [
            f"SCRAM-SHA-512=[name={name},password={password}]"
            for name, password in ((USER, PASSWORD), (STRANGER, STRANGER_PASSWORD))
        ]
        arguments = ["--standalone", *(part for one in scram for part in ("--add-scram", one))]
        try:
            node.format(common(node, None, 1) + secure(node, admin, broker.certificates), random_id(), arguments)
            node.start()
        except BaseException:
            broker.stop()
            raise
        return broker


def secure(node: Node, admin_port: int, certificates: Certificates) -> str:
    listeners = f"SECURE://127.0.0.1:{node.port},ADMIN://127.0.0.1:{admin_port}"
    module = "org.apache.kafka.common.security"
    return f"""
listeners={listeners},CONTROLLER://127.0.0.1:{node.controller_port}
advertised.listeners={listeners},CONTROLLER://127.0.0.1:{node.controller_port}
listener.security.protocol.map=SECURE:SASL_SSL,ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=ADMIN
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{ADMIN};User:{USER}
listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512,OAUTHBEARER
listener.name.secure.scram-sha-512.sasl.jaas.config={module}.scram.ScramLoginModule required;
listener.name.secure.oauthbearer.sasl.jaas.config={module}.oauthbearer.OAuthBearerLoginModule required \
unsecuredLoginStringClaim_sub="broker";
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={certificates.server_chain}
listener.name.secure.ssl.truststore.type=PEM
listener.name.secure.ssl.truststore.location={certificates.authority}
listener.name.secure.ssl.client.auth=requested
"""


@dataclass
class Registry:
    """A Confluent-compatible schema registry; ``url`` is what clients are given."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    arguments: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def kill(self) -> None:
        end(self.process, signal.SIGKILL)

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/subjects", timeout=5):
                    return
            except urllib.error.HTTPError as error:
                error.close()
            except OSError:
                pass
            time.sleep(0.2)
        raise StartError(f"the registry did not start; see {self.folder / 'output.log'}")

    @classmethod
    def start(cls, folder: Path) -> Self:
        """Start it, empty, and wait; raises ``UnavailableError``."""
        lib = jars("registry")
        (port,) = free_ports(1)
        folder.mkdir(parents=True, exist_ok=True)
        settings = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
        arguments = ["-Xmx512m", *settings, "-jar", str(next(lib.glob("*-runner.jar")))]
        registry = cls(java(folder, arguments), port, folder, arguments)
        try:
            registry.wait()
        except BaseException:
            registry.kill()
            raise
        return registry
