"""The registry behind TLS: whom we do not trust we do not ask."""

import contextlib
import socket
import ssl
import threading

import pytest
from certificates import Certificates

from eacgm.errors import RegistryError
from eacgm.events import AlertEvent
from eacgm.schemas.registry import Registry, RegistryAddress
from eacgm.schemas.store import schema_of

pytestmark = pytest.mark.kafka


class Door:
    """Ends TLS in front of a server without it."""

    def __init__(self, certificates, port):
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates.server_chain)
        self._inside = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            try:
                outside = self._context.wrap_socket(plain, server_side=True)
            except (ssl.SSLError, OSError):
                plain.close()
                continue
            inside = socket.create_connection(("127.0.0.1", self._inside))
            for source, sink in ((outside, inside), (inside, outside)):
                thread = threading.Thread(target=self._carry, args=(source, sink), daemon=True)
                self._threads.append(thread)
                thread.start()

    @staticmethod
    def _carry(source, sink):
        with contextlib.suppress(OSError):
            while some := source.recv(65536):
                sink.sendall(some)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)


def test_a_registry_is_asked_over_tls_only_if_its_authority_is_known(schema_registry, tmp_path):
    certificates = Certificates.make(tmp_path / "certificates")
    door = Door(certificates, schema_registry.port)
    url = f"https://localhost:{door.port}/apis/ccompat/v7"
    trusting = Registry(RegistryAddress(url=url, authority=str(certificates.authority)))
    schema_id = trusting.id_of(schema_of(AlertEvent.topic))
    assert trusting.writer(schema_id).same
    trusting.close()
    stranger = Registry(RegistryAddress(url=url))
    with pytest.raises(RegistryError, match=r"(?i)certificate"):
        stranger.id_of(schema_of(AlertEvent.topic))
    stranger.close()
    door.close()
