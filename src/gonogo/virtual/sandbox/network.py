"""No network: libraries are told so before they try, and other attempts of the program are recorded.

The kernel blocks all connections (``gonogo.confinement``). Its errors reach the program unchanged.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from functools import wraps
from typing import Any

from gonogo.virtual.lookups.failed_lookups import record_unreachable_host
from gonogo.virtual.patching.patches import Patches

_OFFLINE_VARIABLES = {
    # Read when these packages are imported: they use their caches at once instead of trying to connect and waiting.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_UPDATE_DOWNLOAD_COUNTS": "0",
    "MODELSCOPE_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "SWANLAB_MODE": "disabled",
}
_UNREACHABLE_ERRNOS = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN})


def install(on_unreachable_host: Callable[[str], None] = lambda host: None) -> Patches:
    """Make libraries work offline; ``on_unreachable_host`` is called with each host that could not be reached."""
    patches = Patches()
    for variable, value in _OFFLINE_VARIABLES.items():
        patches.set_item(os.environ, variable, value)

    def report_unreachable_host(host: Any) -> None:
        name = host.decode(errors="replace") if isinstance(host, bytes) else str(host)
        if name != socket.gethostname():  # its own name may not resolve in the run either
            record_unreachable_host(name)
            on_unreachable_host(name)

    def wrap_network_call(call: Callable[..., Any], get_host: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def call_and_report(*args: Any, **kwargs: Any) -> Any:
            try:
                answer = call(*args, **kwargs)
            except OSError as error:
                if isinstance(error, socket.gaierror) or error.errno in _UNREACHABLE_ERRNOS:
                    report_unreachable_host(get_host(*args, **kwargs))
                raise
            if call.__name__ == "connect_ex" and answer in _UNREACHABLE_ERRNOS:
                report_unreachable_host(get_host(*args, **kwargs))
            return answer

        return call_and_report

    for name in ("connect", "connect_ex", "sendto", "sendmsg"):
        patches.set(socket.socket, name, wrap_network_call(getattr(socket.socket, name), _host_argument))
    names = ("getaddrinfo", "gethostbyname", "gethostbyname_ex")
    replaced = {name: wrap_network_call(getattr(socket, name), _resolved_host) for name in names}
    patches.replace_everywhere([(getattr(socket, name), replaced[name]) for name in names], excluded_modules=(socket,))
    for name in names:
        patches.set(socket, name, replaced[name])
    return patches


def _host_argument(*arguments: Any) -> Any:
    """The host in the arguments of a socket method, whose last argument is the address."""
    address = arguments[-1]
    return address[0] if isinstance(address, tuple) and address else address


def _resolved_host(host: Any = "", *rest: Any, **others: Any) -> Any:
    return host
