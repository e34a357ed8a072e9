"""No network: a rehearsal reaches nothing but its own machine, and says so to whoever tries."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Callable
from typing import Any

from gonogo.finding import Text
from gonogo.virtual.patching.patches import Patches

REFUSED = Text(
    "the program tried to reach {host} over the network, which a rehearsal does not use",
    "程序试图通过网络访问 {host}，而排练不使用网络",
)
_ENVIRONMENT = {
    # Read when these packages are imported: they look in their caches at once instead of trying, and waiting, first.
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


def is_local(host: Any) -> bool:
    """Whether a host, by name or number, is this machine's loopback."""
    name = (host.decode(errors="replace") if isinstance(host, bytes) else str(host or "")).rstrip(".").lower()
    if name in ("", "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback") or name.endswith(
        ".localhost"
    ):
        return True
    number = _number(name)
    return number is not None and (number.is_loopback or number.is_unspecified)


def _number(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        number = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(number, "ipv4_mapped", None)
    return mapped or number


def install(on_refused: Callable[[str], None] = lambda host: None) -> Patches:
    """Refuse all connections but local ones, with an OSError that names the host; ``on_refused`` hears of each host."""
    patches = Patches()
    for variable, value in _ENVIRONMENT.items():
        patches.item(os.environ, variable, value)

    def refusal(host: Any, kind: type[OSError] = OSError, number: int = errno.ENETUNREACH) -> OSError:
        name = host.decode(errors="replace") if isinstance(host, bytes) else str(host)
        on_refused(name)
        return kind(number, REFUSED.format(host=name).en)

    def check(family: int, address: Any) -> None:
        if family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple) and address:
            if not is_local(address[0]) and not _is_own_name(address[0]):
                raise refusal(address[0])
        elif family not in (getattr(socket, "AF_UNIX", None), socket.AF_INET, socket.AF_INET6):
            raise refusal(f"an address of family {family}")

    methods = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex", "sendto", "sendmsg")}

    def connect(self: socket.socket, address: Any) -> None:
        check(self.family, address)
        methods["connect"](self, address)

    def connect_ex(self: socket.socket, address: Any) -> int:
        try:
            check(self.family, address)
        except OSError as error:
            return error.errno or errno.ENETUNREACH
        result: int = methods["connect_ex"](self, address)
        return result

    def sendto(self: socket.socket, data: Any, *rest: Any) -> int:
        check(self.family, rest[-1])
        result: int = methods["sendto"](self, data, *rest)
        return result

    def sendmsg(self: socket.socket, buffers: Any, *rest: Any) -> int:
        if len(rest) > 2 and rest[2] is not None:
            check(self.family, rest[2])
        result: int = methods["sendmsg"](self, buffers, *rest)
        return result

    for replacement in (connect, connect_ex, sendto, sendmsg):
        patches.set(socket.socket, replacement.__name__, replacement)

    look_up = {name: getattr(socket, name) for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex")}
    replaced: list[tuple[Any, Any]] = []
    for name, original in look_up.items():

        def by_name(host: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            text = host.decode(errors="replace") if isinstance(host, bytes) else host
            if is_local(host) or _is_own_name(host) or _number(str(text)) is not None:
                return _original(host, *args, **kwargs)
            raise refusal(host, socket.gaierror, socket.EAI_NONAME)

        by_name.__name__ = name
        patches.set(socket, name, by_name)
        replaced.append((original, by_name))
    patches.everywhere(replaced, but=(socket,))
    return patches


def _is_own_name(host: Any) -> bool:
    return (host.decode(errors="replace") if isinstance(host, bytes) else host) == socket.gethostname()
