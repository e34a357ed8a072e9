"""``run SOCKET LISTEN HERE=THERE,… CWD COMMAND…``: has the world's first process start COMMAND, and stands in for it.

Streams, working directory, environment, signals and exit status are those of COMMAND. When this process is killed, so
is COMMAND with its whole process group; when the world ends, this process exits with status 137.

This process is outside the world, so the command's variables must not affect it: each has :data:`PREFIX` before its
name, so that the command's ``LD_PRELOAD`` is not loaded here. A variable named by the prefix alone marks the
environment as encoded.
"""

import _socket
import os
import select
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # signal imports enum, which costs more than all the rest

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
LENGTH = struct.Struct("=I")
PREFIX = b":"
WORLD_ENDED = 137
CANNOT_START = 126
_MAX_ADDRESS_LENGTH = 100  # of a socket's path: the kernel's limit is 108 with the terminating zero
_MAX_COPIED_BYTES = 64 << 20


def main(arguments: list[str]) -> None:
    """Request the start, then forward signals until the command ends."""
    address, listen, extra, cwd, *words = arguments
    numbers = {0: 0, 1: 1, 2: 2}
    for pair in extra.split(",") if extra else ():
        here, there = pair.split("=")
        numbers[int(here)] = int(there)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in FORWARDED:
        signal.signal(number, lambda number, frame: None)
    try:
        if PREFIX not in os.environb:
            raise OSError(22, "its variables are not those of World.environment")
        descriptors = [_safe_descriptor(number) for number in numbers]
    except OSError as error:
        os.write(2, f"gonogo: {words[0]!r} could not be started: {error}\n".encode("utf-8", "backslashreplace"))
        os._exit(CANNOT_START)
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        _connect(channel, address)
        _request_start(channel, words, listen, cwd or os.getcwd(), list(numbers.values()), descriptors)
    except OSError:
        os._exit(WORLD_ENDED)
    for descriptor in {*list(numbers)[3:], *descriptors} - {0, 1, 2}:
        os.close(descriptor)
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    poll.register(woken, select.POLLIN)
    message = b""
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == woken:
                _forward_signals(channel, os.read(woken, 64))
                continue
            try:
                block = channel.recv(64)
            except OSError:  # the world ended before it read the request
                block = b""
            message += block
            if not block or len(message) >= 4:
                _exit_with_status(struct.unpack("=i", message)[0] if len(message) == 4 else WORLD_ENDED)


def _forward_signals(channel: _socket.socket, signals: bytes) -> None:
    try:
        channel.send(signals)
    except OSError:
        pass  # the world or the command has ended, which the next read shows


def _safe_descriptor(descriptor: int) -> int:
    """A descriptor that gives the command no more access than intended.

    A file behind a descriptor can be reopened for writing (``/proc/self/fd``), and a folder gives access to
    everything around it: files open for reading are therefore passed as a copy, and folders are refused.
    """
    try:
        state = os.fstat(descriptor)
    except OSError:
        return os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    if stat.S_ISDIR(state.st_mode) or stat.S_ISBLK(state.st_mode):
        raise OSError(1, f"descriptor {descriptor} is a folder or a disk: a confined program can't have it")
    import fcntl

    if not stat.S_ISREG(state.st_mode) or fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
        return descriptor
    if state.st_size > _MAX_COPIED_BYTES:
        return _open_feeding_pipe(descriptor)
    copy = os.memfd_create("file")
    at = os.lseek(descriptor, 0, os.SEEK_CUR)
    offset = 0
    while True:
        block = os.pread(descriptor, 1 << 20, offset)
        if not block:
            break
        offset += len(block)
        while block:
            block = block[os.write(copy, block) :]
    os.lseek(copy, at, os.SEEK_SET)
    return copy


def _open_feeding_pipe(descriptor: int) -> int:
    """The read end of a pipe, into which a child process copies the rest of the descriptor's file."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        return reading
    os.close(reading)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    while True:
        block = os.read(descriptor, 1 << 16)
        if not block:
            os._exit(0)
        while block:
            block = block[os.write(writing, block) :]


def _connect(channel: _socket.socket, address: str) -> None:
    if len(os.fsencode(address)) > _MAX_ADDRESS_LENGTH:
        folder, _, name = address.rpartition("/")
        address = f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_CLOEXEC)}/{name}"
    channel.connect(address)


def _request_start(
    channel: _socket.socket, words: list[str], listen: str, cwd: str, targets: list[int], descriptors: list[int]
) -> None:
    environment = [
        name[len(PREFIX) :] + b"=" + value
        for name, value in os.environb.items()
        if name.startswith(PREFIX) and name != PREFIX
    ]
    head = [cwd, listen, ",".join(str(number) for number in targets), str(len(words)), *words]
    text = b"\0".join([*map(os.fsencode, head), *environment])
    rights = struct.pack(f"={len(descriptors)}i", *descriptors)
    channel.sendmsg([LENGTH.pack(len(text))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    channel.sendall(text)


def _exit_with_status(status: int) -> None:
    if status < 0:  # end by the same signal if possible
        sys.stdout.flush()
        try:
            signal.signal(-status, signal.SIG_DFL)
        except (OSError, ValueError):
            pass
        os.kill(os.getpid(), -status)
    os._exit(status & 0xFF)
