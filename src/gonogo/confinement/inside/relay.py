"""``run SOCKET LISTEN HERE=THERE,… COMMAND…``: has the world's first process start COMMAND, and stands for it outside.

Streams, working directory, environment, signals and exit status are those of COMMAND. When this process is killed, so
is COMMAND, with all of its process group; when the world ends, this one ends with status 137.
"""

import _signal as signal
import _socket
import os
import select
import struct
import sys

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
LENGTH = struct.Struct("=I")
WORLD_ENDED = 137


def main(arguments):
    """Ask, and wait."""
    address, listen, extra, *words = arguments
    numbers = {0: 0, 1: 1, 2: 2}
    for pair in extra.split(",") if extra else ():
        here, there = pair.split("=")
        numbers[int(here)] = int(there)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in FORWARDED:
        signal.signal(number, lambda number, frame: None)
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        channel.connect(address)
        _ask(channel, words, listen, numbers)
    except OSError:
        os._exit(WORLD_ENDED)
    for descriptor in list(numbers)[3:]:
        os.close(descriptor)
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    poll.register(woken, select.POLLIN)
    said = b""
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == woken:
                for number in os.read(woken, 64):
                    channel.send(bytes([number]))
                continue
            block = channel.recv(64)
            said += block
            if not block or len(said) >= 4:
                _end(struct.unpack("=i", said)[0] if len(said) == 4 else WORLD_ENDED)


def _ask(channel, words, listen, numbers):
    environment = [name + b"=" + value for name, value in os.environb.items()]
    descriptors = list(numbers)
    targets = ",".join(str(number) for number in numbers.values())
    head = [os.getcwd(), listen, targets, str(len(words)), *words]
    text = b"\0".join([*map(os.fsencode, head), *environment])
    rights = struct.pack(f"={len(descriptors)}i", *descriptors)
    channel.sendmsg([LENGTH.pack(len(text))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    channel.sendall(text)


def _end(status):
    if status < 0:  # by the same signal, as far as this process can
        sys.stdout.flush()
        try:
            signal.signal(-status, signal.SIG_DFL)
        except (OSError, ValueError):
            pass
        os.kill(os.getpid(), -status)
    os._exit(status & 0xFF)
