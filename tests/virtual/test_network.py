"""Loopback works; what the kernel lets nobody reach is told by its name."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confined import runs_of

from gonogo.virtual.sandbox import network, trackers


@pytest.fixture
def refused() -> Iterator[list[str]]:
    hosts: list[str] = []
    patches = network.install(hosts.append)
    yield hosts
    patches.undo()


def test_loopback_and_unix_sockets_work(refused: list[str], tmp_path: object) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    thread = threading.Thread(target=lambda: server.accept()[0].sendall(b"hello"))
    thread.start()
    with socket.create_connection(("localhost", port), timeout=5) as connection:
        assert connection.recv(5) == b"hello"
    thread.join()
    server.close()
    path = os.path.join(str(tmp_path), "s")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as calling:
        listening.bind(path)
        listening.listen()
        calling.connect(path)
    assert refused == []


_ASKING = """
import errno, json, socket, sys
from gonogo.virtual.sandbox import network
hosts, said = [], []
network.install(hosts.append)
tcp, udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for ask in (
    lambda: socket.create_connection(("huggingface.co", 443)),
    lambda: tcp.connect(("10.1.2.3", 80)),
    lambda: udp.sendto(b"x", ("8.8.8.8", 53)),
    lambda: socket.gethostbyname("example.org"),
    lambda: socket.getaddrinfo(port=80, host="example.com"),
    lambda: socket.create_connection(("127.0.0.1", 1)),
):
    try:
        ask()
    except OSError as error:
        said.append(type(error).__name__)
print(json.dumps([list(hosts), said, tcp.connect_ex(("10.1.2.4", 80)) == errno.ENETUNREACH, len(hosts)]))
"""


def test_what_the_kernel_has_no_way_to_is_told_by_its_name(tmp_path: Path) -> None:
    """A port at which nobody listens is none of these: the machine was reached."""
    world = runs_of(tmp_path).world
    if not world.has_overlay:
        pytest.skip("this kernel allows no user namespaces")
    done = subprocess.run(
        world.command([sys.executable, "-c", _ASKING]), cwd=tmp_path, capture_output=True, text=True,
        env=world.environment(os.environ),
    )  # fmt: skip
    hosts, said, by_number, count = json.loads(done.stdout)
    assert hosts == ["huggingface.co", "10.1.2.3", "8.8.8.8", "example.org", "example.com"], done.stderr
    assert said == ["gaierror", "OSError", "OSError", "gaierror", "gaierror", "ConnectionRefusedError"]
    assert (by_number, count) == (True, 6)


def test_own_name_resolves(refused: list[str]) -> None:
    assert socket.getaddrinfo("localhost", 80)
    with contextlib.suppress(socket.gaierror):  # the machine may not know its own name
        socket.getaddrinfo(socket.gethostname(), 80)
    assert refused == []


def test_undo() -> None:
    before = socket.getaddrinfo, vars(socket.socket).get("connect"), os.environ.get("HF_HUB_OFFLINE")
    network.install().undo()
    assert before == (socket.getaddrinfo, vars(socket.socket).get("connect"), os.environ.get("HF_HUB_OFFLINE"))


def test_a_tracker_reports_to_nobody_whatever_mode_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As swanlab 0.9 and wandb refuse where nobody has logged in."""
    (tmp_path / "swanlab.py").write_text(
        "def init(project=None, mode='online'):\n"
        "    if mode != 'disabled':\n"
        "        raise RuntimeError('no TTY is available for interactive login')\n"
        "    return project, mode\n"
        "def login(api_key):\n"
        "    raise OSError('no network')\n"
    )
    (tmp_path / "wandb").mkdir()  # as runs leave it behind
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("swanlab", "wandb"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    undo = trackers.install()
    try:
        swanlab, _ = importlib.import_module("swanlab"), importlib.import_module("wandb")
        assert swanlab.init(project="mine", mode="cloud") == ("mine", "disabled")
        assert swanlab.login("key") is True
    finally:
        undo()
        for name in ("swanlab", "wandb"):
            sys.modules.pop(name, None)
