"""What a long-running command tells of itself over HTTP: /metrics for Prometheus, /healthz for whoever restarts it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from eacgm.errors import ConfigError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reading:
    """One metric: its name without ``_total``, what it means, and a value, or one per set of labels."""

    name: str
    text: str
    value: float | dict[tuple[str, ...], float]
    kind: Literal["counter", "gauge"] = "counter"
    labels: tuple[str, ...] = field(default=())

    def family(self) -> Metric:
        """Return it as Prometheus' client wants it."""
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = kind(self.name, self.text, labels=self.labels)
        values = self.value if isinstance(self.value, dict) else {(): self.value}
        for labels, value in sorted(values.items()):
            family.add_metric(labels, value)
        return family


class MetricsServer:
    """Serves the readings from ``with`` to its end, in threads of its own."""

    def __init__(
        self, address: str, read: Callable[[], Iterable[Reading]], ailment: Callable[[], str | None] = lambda: None
    ) -> None:
        """Listen at ``HOST:PORT``; ``ailment`` says why the command is not healthy, None if it is.

        Raises ``ConfigError`` for an address that cannot be listened at.
        """
        registry = CollectorRegistry()
        registry.register(_Collector(read))
        host, _, port = address.rpartition(":")
        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(registry, ailment))
        except (OSError, ValueError, OverflowError) as error:
            raise ConfigError(f"cannot serve metrics at {address!r} ({error}); expected a free HOST:PORT") from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def address(self) -> str:
        """Where it listens, as ``HOST:PORT``."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def __enter__(self) -> MetricsServer:
        """Begin to serve."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Collector:
    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        for reading in self._read():
            yield reading.family()


def _handler(registry: CollectorRegistry, ailment: Callable[[], str | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE)
            elif self.path == "/healthz":
                ill = ailment()
                self._answer(503 if ill else 200, f"{ill or 'ok'}\n".encode(), "text/plain; charset=utf-8")
            else:
                self._answer(404, b"expected /metrics or /healthz\n", "text/plain; charset=utf-8")

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing of each request."""

    return Handler
