"""Debian's Alertmanager, unpacked into a cache and started on a free port: nothing is installed, no service begins."""

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
PACKAGE = "prometheus-alertmanager"
SHARE = Path("/usr/share")


def program(name="prometheus-alertmanager", package=PACKAGE):
    """Return a program of a Debian package, None and the reason where it is not to be had."""
    found = shutil.which(name)
    if found:
        return Path(found), ""
    path = CACHE / package / "usr" / "bin" / name
    if not path.is_file():
        if not shutil.which("apt-get"):
            return None, f"no {name}, and no apt-get to fetch it"
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            os.chmod(folder, 0o755)
            command = ["apt-get", "download", "-qq", package]
            fetched = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            archives = list(Path(folder).glob("*.deb"))
            if not archives:
                return None, f"apt-get download {package}: {' '.join(fetched.stderr.split())[-200:]}"
            subprocess.run(["dpkg-deb", "-x", archives[0], f"{folder}/tree"], check=True)
            shutil.rmtree(CACHE / package, ignore_errors=True)
            os.rename(f"{folder}/tree", CACHE / package)
    return path, ""


class Alertmanager:
    """One server without peers, its alerts under ``url``/api/v2/alerts."""

    def __init__(self, path, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        (folder / "am.yml").write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
        # its templates are looked for below /usr/share: there, for it alone, lies what was unpacked
        share = path.parents[1] / "share"
        own = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        bound = [*own, "sh", "-c", 'mount --bind "$0" /usr/share && exec "$@"', share] if share != SHARE else []
        options = [f"--config.file={folder}/am.yml", f"--storage.path={folder}/data", "--cluster.listen-address="]
        command = [*bound, path, *options]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT
            )
        until = time.monotonic() + 30
        while not self._ready():
            if time.monotonic() > until or self._process.poll() is not None:
                self.stop()
                raise AssertionError((folder / "log").read_text())
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
