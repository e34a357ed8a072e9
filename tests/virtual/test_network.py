"""Loopback works, everything else is refused by name."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def test_other_hosts_are_refused_by_name(refused: list[str]) -> None:
    with pytest.raises(OSError, match=r"huggingface\.co over the network") as error:
        socket.create_connection(("huggingface.co", 443))
    assert isinstance(error.value, socket.gaierror)
    with socket.socket() as sock, pytest.raises(OSError, match=r"10\.1\.2\.3"):
        sock.connect(("10.1.2.3", 80))
    with socket.socket() as sock:
        assert sock.connect_ex(("10.1.2.3", 80)) != 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, pytest.raises(OSError, match=r"8\.8\.8\.8"):
        sock.sendto(b"x", ("8.8.8.8", 53))
    with pytest.raises(OSError, match=r"example\.org"):
        socket.gethostbyname("example.org")
    assert refused == ["huggingface.co", "10.1.2.3", "10.1.2.3", "8.8.8.8", "example.org"]


def test_own_name_resolves(refused: list[str]) -> None:
    assert socket.getaddrinfo("localhost", 80)
    with contextlib.suppress(socket.gaierror):  # the machine may not know its own name
        socket.getaddrinfo(socket.gethostname(), 80)
    assert refused == []


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "a.localhost", "0.0.0.0", "::ffff:127.0.0.1", ""]
)
def test_local(host: str) -> None:
    assert network.is_local(host)


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "192.168.0.1", "::2", "localhost.example.org", "::ffff:8.8.8.8", "worker-0"]
)
def test_not_local(host: str) -> None:
    assert not network.is_local(host)


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
