"""Programs of Debian's packages, unpacked into a cache: nothing is installed, no service begins."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eacgm"


class UnavailableError(Exception):
    """A program is not to be had here; the text says why."""


def command(name, package):
    """Return the words that start a package's program; raises ``UnavailableError``."""
    installed = shutil.which(name)
    if installed:
        return [installed]
    tree = CACHE / package
    if not (tree / "usr/bin" / name).is_file():
        _unpack(package, tree)
    # programs look for files below /usr/share: there, for this one alone, lies what was unpacked
    own = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    bound = [*own, "sh", "-c", 'mount --bind "$0" /usr/share && exec "$@"', str(tree / "usr/share")]
    tried = subprocess.run([*bound, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise UnavailableError(f"{name}: {tried.stderr.strip()}")
    return [*bound, str(tree / "usr/bin" / name)]


def _unpack(package, tree):
    if not shutil.which("apt-get"):
        raise UnavailableError(f"no apt-get to fetch {package}")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        os.chmod(folder, 0o777)  # apt fetches as a user of its own
        fetched = subprocess.run(
            ["apt-get", "download", "-qq", package], cwd=folder, capture_output=True, text=True, check=False
        )
        archives = list(Path(folder).glob("*.deb"))
        if not archives:
            raise UnavailableError(f"apt-get download {package}: {' '.join(fetched.stderr.split())[-200:]}")
        subprocess.run(["dpkg-deb", "-x", archives[0], f"{folder}/tree"], check=True)
        shutil.rmtree(tree, ignore_errors=True)
        os.rename(f"{folder}/tree", tree)


class Service:
    """A server at ``url`` that answers /-/ready (as Prometheus and Alertmanager do), until ``stop``."""

    def __init__(self, words, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        log = folder / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*words, f"--web.listen-address=127.0.0.1:{port}"], stdout=output, stderr=subprocess.STDOUT
            )
        until = time.monotonic() + 30
        while not self._ready():
            if time.monotonic() > until or self._process.poll() is not None:
                self.stop()
                raise AssertionError(log.read_text())
            time.sleep(0.1)

    def _ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def stop(self):
        self._process.kill()
        self._process.wait()
