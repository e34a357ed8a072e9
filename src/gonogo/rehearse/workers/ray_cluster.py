"""Connects to a Ray cluster, and explains in one line if that fails."""

from __future__ import annotations

import contextlib
import importlib
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from gonogo.finding import UserError, translated
from gonogo.finding.install import install_hint
from gonogo.rehearse.workers.ray_pool import RayPool

_CONNECT_TIMEOUT_SECONDS = 5.0


@contextlib.contextmanager
def connect_to_cluster(address: str) -> Iterator[RayPool]:
    """A pool on the cluster at ``address`` (``HOST:PORT`` or ``auto``), of which this machine must be a node.

    Raises UserError if Ray is not installed or there is no cluster.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise UserError(
            translated("--ray needs Ray, which is not installed: {install}").format(install=install_hint("ray"))
        ) from None
    _check_reachable(address)
    main = threading.current_thread() is threading.main_thread()
    terminate = signal.getsignal(signal.SIGTERM) if main else None
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False, logging_level=logging.CRITICAL)
    except Exception as error:
        raise _unreachable_error(address, str(error).strip().partition("\n")[0]) from None
    try:
        if main:
            signal.signal(signal.SIGTERM, terminate)  # Ray has replaced it with its own
        yield RayPool(ray)
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise UserError if nothing listens at the address: Ray itself would retry for a minute."""
    if address == "auto":
        return
    if address.startswith("ray://"):
        raise UserError(
            translated(
                "--ray {address}: ranks can only be started from a node of the cluster, not through Ray "
                "Client: run gonogo there, with --ray auto"
            ).format(address=address)
        )
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise UserError(
            translated(
                "--ray {address}: write HOST:PORT, for example 10.0.0.1:6379, or auto for this machine's cluster"
            ).format(address=address)
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _unreachable_error(address, getattr(error, "strerror", None) or str(error)) from None


def _unreachable_error(address: str, reason: str) -> UserError:
    return UserError(
        translated(
            "--ray {address}: can't connect to a Ray cluster ({why}): start one with ray start --head, or "
            "use the address that it printed"
        ).format(address=address, why=reason)
    )
