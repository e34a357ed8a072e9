"""The connection to a Ray cluster, and one line about why there is none."""

from __future__ import annotations

import contextlib
import importlib
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from gonogo.finding import Text
from gonogo.finding.errors import UserError
from gonogo.finding.install import install_hint
from gonogo.rehearse.workers.ray_pool import RayPool

_REACHED_WITHIN = 5.0


@contextlib.contextmanager
def connected(address: str) -> Iterator[RayPool]:
    """A pool on the cluster at ``address`` (``HOST:PORT`` or ``auto``), of which this machine has to be a node.

    Raises UserError where Ray is not installed or there is no cluster.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise UserError(
            Text(
                "--ray needs Ray, which is not installed: {install}", "--ray 需要 Ray，但它没有安装：{install}"
            ).format(install=install_hint("ray"))
        ) from None
    _check_reached(address)
    main = threading.current_thread() is threading.main_thread()
    terminate = signal.getsignal(signal.SIGTERM) if main else None
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False, logging_level=logging.CRITICAL)
    except Exception as error:
        raise _unreachable(address, str(error).strip().partition("\n")[0]) from None
    try:
        if main:
            signal.signal(signal.SIGTERM, terminate)  # Ray has put its own in its place
        yield RayPool(ray)
    finally:
        ray.shutdown()


def _check_reached(address: str) -> None:
    """Raise UserError where nobody listens at the address: Ray itself would try for a minute."""
    if address == "auto":
        return
    if address.startswith("ray://"):
        raise UserError(
            Text(
                "--ray {address}: ranks can only be started from a node of the cluster, not through Ray "
                "Client: run gonogo there, with --ray auto",
                "--ray {address}：各 rank 由集群的节点启动，不能通过 Ray client：请在某个节点上运行 gonogo，并使用 "
                "--ray auto",
            ).format(address=address)
        )
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise UserError(
            Text(
                "--ray {address}: write HOST:PORT, for example 10.0.0.1:6379, or auto for this machine's cluster",
                "--ray {address}：请写成 主机:端口，例如 10.0.0.1:6379；auto 表示本机所在的集群",
            ).format(address=address)
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACHED_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, getattr(error, "strerror", None) or str(error)) from None


def _unreachable(address: str, why: str) -> UserError:
    return UserError(
        Text(
            "--ray {address}: can't connect to a Ray cluster ({why}): start one with ray start --head, or "
            "use the address that it printed",
            "--ray {address}：无法连接到 Ray 集群（{why}）：请用 ray start --head 启动，或填写它打印的地址",
        ).format(address=address, why=why)
    )
