"""The network of a world: loopback and the machine's own addresses, so that programs can reach themselves by name.

Each address is on an idle interface with the same name as outside; there are no routes to other machines.
"""

import _socket
import fcntl
import os
import struct

_AF_NETLINK, _RTM_NEWLINK, _RTM_NEWADDR, _RTM_GETADDR = 16, 16, 20, 22
_REQUEST, _ACK, _CREATE, _DUMP = 1, 4, 0x400, 0x300
_IFF_UP = 1
_INTERFACE_KINDS = (b"dummy", b"bridge")
"""A kernel may lack the first. ``hostname -I`` leaves out what is on loopback; a bridge without ports is as idle."""


def machine_addresses() -> list[tuple[str, int, bytes]]:
    """This machine's addresses as (interface, family, address), without loopback."""
    try:
        with _Netlink() as netlink:
            packets = netlink.request(_RTM_GETADDR, _DUMP, struct.pack("=BBBBI", 0, 0, 0, 0, 0))
    except OSError:
        return []
    names: dict[int, str] = {}
    found = []
    for body in packets:
        family, _, _, _, index = struct.unpack_from("=BBBBI", body)
        attributes = _parse_attributes(body, 8)
        address = attributes.get(2) or attributes.get(1)  # IFA_LOCAL, IFA_ADDRESS
        if address is None:
            continue
        if index not in names:
            try:
                names[index] = _socket.if_indextoname(index)
            except OSError:
                continue
        if names[index] != "lo":
            found.append((names[index], family, address))
    return found


def bring_up_interfaces(own: list[tuple[str, int, bytes]]) -> None:
    """Bring up loopback and the machine's ``own`` addresses, as far as the kernel supports it."""
    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        fcntl.ioctl(probe.fileno(), 0x8914, struct.pack("16sh14x", b"lo", _IFF_UP))  # SIOCSIFFLAGS
    finally:
        probe.close()
    with _Netlink() as netlink:
        for name in dict.fromkeys(name for name, _, _ in own):
            for kind in _INTERFACE_KINDS:
                link = struct.pack("=BxHiII", 0, 0, 0, _IFF_UP, 0xFFFFFFFF)
                link += _netlink_attribute(3, name.encode() + b"\0")  # IFLA_IFNAME
                link += _netlink_attribute(18, _netlink_attribute(1, kind))  # IFLA_LINKINFO, IFLA_INFO_KIND
                try:
                    netlink.request(_RTM_NEWLINK, _ACK | _CREATE, link)
                    break
                except OSError:
                    continue  # of no kind: its addresses are added to loopback
        for name, family, address in own:
            try:
                index = _socket.if_nametoindex(name)
            except OSError:
                index = _socket.if_nametoindex("lo")
            body = struct.pack("=BBBBI", family, 8 * len(address), 2, 0, index)  # IFA_F_NODAD
            try:
                netlink.request(
                    _RTM_NEWADDR, _ACK | _CREATE, body + _netlink_attribute(2, address) + _netlink_attribute(1, address)
                )
            except OSError:
                continue


class _Netlink:
    """A netlink socket, for the kernel's network configuration."""

    def __enter__(self) -> "_Netlink":
        self._socket = _socket.socket(_AF_NETLINK, _socket.SOCK_RAW, 0)
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def request(self, kind: int, flags: int, body: bytes) -> list[bytes]:
        """Send a request and return the bodies of the kernel's replies. Raises OSError if it refuses."""
        self._socket.send(struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, 1, 0) + body)
        found: list[bytes] = []
        while True:
            data = self._socket.recv(1 << 16)
            while data:
                size, answer = struct.unpack_from("=IH", data)
                if answer == 3:  # NLMSG_DONE
                    return found
                if answer == 2:  # NLMSG_ERROR
                    number = -struct.unpack_from("=i", data, 16)[0]
                    if number:
                        raise OSError(number, os.strerror(number))
                    return found
                found.append(data[16:size])
                data = data[(size + 3) & ~3 :]


def _netlink_attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _parse_attributes(body: bytes, start: int) -> dict[int, bytes]:
    found = {}
    while start + 4 <= len(body):
        size, kind = struct.unpack_from("=HH", body, start)
        if size < 4:
            break
        found[kind] = body[start + 4 : start + size]
        start += (size + 3) & ~3
    return found
