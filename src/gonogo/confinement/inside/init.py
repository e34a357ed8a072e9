"""``begin CONTROL LISTENER``: the first process of a world, which sets it up, starts programs in it, and limits it.

CONTROL is a packet socket to gonogo. The specification of the world is read from it, ``ready`` or ``error WHY`` is
the answer, and when its other end is closed, all processes of the world are killed. LISTENER accepts relays that ask
for programs. Untrusted programs can't reach this process: it has more rights than they have, and with namespaces it
is process 1.
"""

import _socket
import errno
import fcntl
import marshal
import os
import resource
import select
import struct
import sys
import time

from . import calls, kernel, landlock, network, seccomp
from .mounts import FileTree, LayerUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator
    from typing import NoReturn, TypedDict

    class InitMessage(TypedDict):
        """The message that gonogo sends: see ``World._init_message``."""

        means: str
        in_user_namespace: bool
        layer: str
        private: str
        shared: list[str]
        readable: list[str]
        remapped: list[str]
        hidden: list[str]
        umask: int
        processes: int
        least_memory: int
else:
    import _signal as signal  # signal imports enum, which takes longer than everything else

_NAMESPACE_FLAGS = (
    kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)  # fmt: skip
_LIMIT_CHECK_SECONDS = 0.25
_MAX_MESSAGE_BYTES = 1 << 20
_MAX_DESCRIPTORS = 64


def main(arguments: list[str]) -> None:
    """Set up the world, then serve it."""
    control = _socket.socket(fileno=int(arguments[0]))
    listener = _socket.socket(fileno=int(arguments[1]))
    spec: InitMessage = marshal.loads(control.recv(_MAX_MESSAGE_BYTES))
    os.umask(0o022)
    notes: list[str] = []
    ends_at_once = False
    try:
        if spec["means"] == "namespaces":
            _enter_namespaces(spec, notes, control)
        else:
            ends_at_once = _prepare_without_namespaces(spec)
    except LayerUnsupported as error:
        _report_refusal(control, "layer", error)
    except Exception as error:
        _report_refusal(control, "error", error)
    control.send(b"ready " + "\0".join(notes).encode("utf-8", "backslashreplace"))
    WorldServer(spec, control, listener, ends_at_once).serve()


def _report_refusal(control: _socket.socket, kind: str, error: Exception) -> "NoReturn":
    why = str(error)
    if isinstance(error, OSError) and error.strerror:
        why = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    control.send(f"{kind} {why}".encode("utf-8", "backslashreplace"))
    os._exit(1)


def _enter_namespaces(spec: "InitMessage", notes: list[str], control: _socket.socket) -> None:
    """Become process 1 of new namespaces of every kind; the original process only waits for it."""
    own = network.machine_addresses()
    if spec["in_user_namespace"]:  # an existing user namespace, in which this process has all capabilities
        kernel.call("unshare", _NAMESPACE_FLAGS & ~kernel.CLONE_NEWUSER)
    else:
        _unshare()
    first = os.fork()
    if first:
        control.close()
        _, status = os.waitpid(first, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    files = FileTree(spec["layer"], spec["hidden"], spec["remapped"], notes)
    files.build_tree()
    files.mount_system_folders()
    for path in (*spec["hidden"], spec["private"]):
        files.hide(path)
    for path in spec["shared"]:
        files.bind_folder(path)
    for path in spec["readable"]:
        files.bind_folder(path, is_read_only=True)
    files.pivot_root()
    network.bring_up_interfaces(own)


def _unshare() -> None:
    """Unshare all namespaces; a child outside writes the user mapping, as needed to map several users (root)."""
    user, group = os.geteuid(), os.getegid()
    waits, go = os.pipe()
    writer = os.fork()
    if not writer:
        os.close(go)
        os.read(waits, 1)
        try:
            _map_users(os.getppid(), user, group)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    os.close(waits)
    try:
        kernel.call("unshare", _NAMESPACE_FLAGS)
    finally:
        os.close(go)
        _, status = os.waitpid(writer, 0)
    status = os.waitstatus_to_exitcode(status)
    if status:
        raise OSError(status, f"the users of a namespace can't be set: {os.strerror(status)}")


def _map_users(process: int, user: int, group: int) -> None:
    folder = f"/proc/{process}"
    if user == 0:
        for name in ("gid_map", "uid_map"):
            with open(f"/proc/self/{name}", encoding="ascii") as file:
                lines = [line.split() for line in file]
            _write_text(f"{folder}/{name}", "".join(f"{inside} {inside} {count}\n" for inside, _, count in lines))
        return
    _write_text(f"{folder}/setgroups", "deny")
    _write_text(f"{folder}/gid_map", f"{group} {group} 1")
    _write_text(f"{folder}/uid_map", f"{user} {user} 1")


def _write_text(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _prepare_without_namespaces(spec: "InitMessage") -> bool:
    """Prepare a world without namespaces, as the subreaper of all processes that are started here.

    Returns whether a signal to all processes (pid -1) reaches those of the world only.
    """
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    if spec["means"] != "landlock":
        return False
    probe = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        probe.connect("/nobody/is/here")
    except OSError as error:
        if error.errno == errno.EACCES:  # relays could not connect to this process
            raise OSError(errno.EACCES, "this is in a confinement by Landlock already") from None
    finally:
        probe.close()
    child = os.fork()
    if not child:
        try:
            _confine_by_landlock(spec)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(status)
    if status:
        raise OSError(status, f"Landlock: {os.strerror(status)}")
    if not landlock.keep_signals_inside():
        return False
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _confine_by_landlock(spec: "InitMessage") -> None:
    landlock.restrict(spec["shared"], spec["readable"], [*spec["hidden"], spec["private"]])
    kernel.drop_capabilities()
    seccomp.deny_escapes(namespaces=False, landlock=landlock.abi_version())


class WorldServer:
    """Starts programs for relays, forwards signals, and kills everything when gonogo closes ``control``."""

    def __init__(
        self, spec: "InitMessage", control: _socket.socket, listener: _socket.socket, ends_at_once: bool
    ) -> None:
        self._spec = spec
        self._control = control
        self._listener = listener
        self._spaces = spec["means"] == "namespaces"
        self._ends_at_once = ends_at_once
        self._asking: dict[int, tuple[_socket.socket, int]] = {}
        """Relays by descriptor: (socket, id of the process that it represents)."""
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def serve(self) -> "NoReturn":
        """Serve until the world ends."""
        poll = select.poll()
        for descriptor in (self._control.fileno(), self._listener.fileno(), self._woken):
            poll.register(descriptor, select.POLLIN)
        looked = time.monotonic()
        while True:
            for descriptor, _ in poll.poll(_LIMIT_CHECK_SECONDS * 1000):
                if descriptor == self._control.fileno():
                    self._receive_signal_request()
                elif descriptor == self._listener.fileno():
                    request = self._start()
                    if request is not None:
                        poll.register(request, select.POLLIN)
                elif descriptor == self._woken:
                    self._drain_wakeups()
                    for gone in self._reap():
                        poll.unregister(gone)
                elif descriptor in self._asking and not self._forward_signals(descriptor):
                    poll.unregister(descriptor)
            if time.monotonic() - looked >= _LIMIT_CHECK_SECONDS:  # even if there are always events
                self._check_limits()
                looked = time.monotonic()

    def _drain_wakeups(self) -> None:
        try:
            os.read(self._woken, 4096)
        except BlockingIOError:
            pass

    def _receive_signal_request(self) -> None:
        try:
            message = self._control.recv(_MAX_MESSAGE_BYTES)
        except OSError:
            message = b""
        if not message:
            self.end()
        what, process, number = message.split()
        try:
            (os.killpg if what == b"group" else os.kill)(int(process), int(number))
        except OSError:
            pass

    def end(self) -> "NoReturn":
        """Kill all processes of the world, this one last."""
        if self._ends_at_once:  # tested at start: signals can't leave the world
            _send_signal(os.kill, -1, signal.SIGKILL)
        if not self._spaces:
            while _kill_descendants():
                try:
                    while os.waitpid(-1, os.WNOHANG)[0]:
                        pass
                except ChildProcessError:
                    break
        os._exit(0)

    # -- programs

    def _start(self) -> int | None:
        """Start the program that a relay asks for; returns the descriptor of the relay's socket."""
        descriptor, _ = self._listener._accept()  # type: ignore[attr-defined]  # typeshed doesn't have it
        channel = _socket.socket(fileno=descriptor)
        try:
            head, ancillary, _, _ = channel.recvmsg(4, _socket.CMSG_SPACE(_MAX_DESCRIPTORS * 4))
            received: list[int] = []
            for level, kind, data in ancillary:
                if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                    received += struct.unpack(f"={len(data) // 4}i", data[: len(data) // 4 * 4])
            left = struct.unpack("=I", head)[0]
            blocks = []
            while left:
                block = channel.recv(min(left, 1 << 16))
                if not block:
                    raise OSError(errno.EPIPE, "the relay has gone")
                blocks.append(block)
                left -= len(block)
        except (OSError, struct.error):
            channel.close()
            return None
        cwd, listen, targets, count, *rest = b"".join(blocks).split(b"\0")
        words, environment = rest[: int(count)], rest[int(count) :]
        descriptors = list(zip(received, map(int, targets.split(b",")), strict=True))
        ours, theirs = (None, None)
        if listen:
            ours, theirs = _socket_pair()
        process = os.fork()
        if not process:
            self._exec_program(words, environment, cwd, listen.decode(), descriptors, theirs)
        for one in received:
            os.close(one)
        if ours is not None and theirs is not None:
            theirs.close()
            self._send_listener(ours, listen)
        self._asking[channel.fileno()] = (channel, process)
        return channel.fileno()

    def _send_listener(self, own_socket: _socket.socket, listen: bytes) -> None:
        """Send gonogo the descriptor for tracing the new process's system calls, if the kernel supports it."""
        try:
            message, ancillary, _, _ = own_socket.recvmsg(1, _socket.CMSG_SPACE(4))
            for _, _, data in ancillary:
                self._control.sendmsg([b"listener " + listen], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, data)])
                os.close(struct.unpack("=i", data[:4])[0])
            if not ancillary:
                self._control.send(b"untraced " + message)
        except OSError:
            pass
        finally:
            own_socket.close()

    def _forward_signals(self, descriptor: int) -> bool:
        """Forward a relay's signals; False if the relay has gone, and its process group was killed."""
        channel, process = self._asking[descriptor]
        try:
            numbers = channel.recv(64)
        except OSError:
            numbers = b""
        for number in numbers:
            _send_signal(os.kill, process, number)
        if numbers:
            return True
        _send_signal(os.killpg, process, signal.SIGKILL)
        _send_signal(os.kill, process, signal.SIGKILL)
        del self._asking[descriptor]
        channel.close()
        return False

    def _reap(self) -> "Iterator[int]":
        """Send the exit status of ended processes to their relays; yields the descriptors of those relays."""
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                return
            for descriptor, (channel, own) in list(self._asking.items()):
                if own == process:
                    try:
                        channel.send(struct.pack("=i", os.waitstatus_to_exitcode(status)))
                    except OSError:
                        pass
                    del self._asking[descriptor]
                    yield descriptor
                    channel.close()

    def _exec_program(
        self,
        words: list[bytes],
        environment: list[bytes],
        cwd: bytes,
        listen: str,
        descriptors: list[tuple[int, int]],
        init_socket: _socket.socket | None,
    ) -> "NoReturn":
        """In the new process: drop rights and execute the program."""
        try:
            self._prepare_process(cwd, listen, descriptors, init_socket)
            _execvpe(words, dict(entry.split(b"=", 1) for entry in environment if b"=" in entry))
        except BaseException as error:
            os.write(2, f"gonogo: {words[0]!r} could not be started: {error!r}\n".encode())
        os._exit(126)

    def _prepare_process(
        self, cwd: bytes, listen: str, descriptors: list[tuple[int, int]], init_socket: _socket.socket | None
    ) -> None:
        """Set up the session, signals, descriptors, limits, working directory and confinement of the program."""
        os.setsid()
        os.umask(self._spec["umask"])
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue
        signal.set_wakeup_fd(-1)
        _install_descriptors(descriptors, init_socket)
        self._set_resource_limits()
        try:
            os.chdir(cwd)
        except OSError as error:
            os.write(2, b"%s: %s\n" % (cwd, os.fsencode(error.strerror or "")))
            os._exit(126)
        self._confine()
        if listen:
            _start_listener()

    def _set_resource_limits(self) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most = self._spec["processes"]
        if most and self._spaces:  # above the limit, so that exceeding it is noticed and reported
            most += most // 4
            _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        try:
            _write_text("/proc/self/oom_score_adj", "1000")  # the first process to be killed if memory runs out
        except OSError:
            pass

    def _confine(self) -> None:
        if self._spaces:
            kernel.drop_capabilities()
            seccomp.deny_escapes(namespaces=True)
        elif self._spec["means"] == "landlock":
            _confine_by_landlock(self._spec)

    # -- limits

    def _check_limits(self) -> None:
        processes = self._count_processes()
        if self._spec["processes"] and processes > self._spec["processes"]:
            self._end_over_limit(f"processes {self._spec['processes']}")
        least = self._spec["least_memory"]
        if least and _available_memory() < least:
            self._end_over_limit(f"memory {least}")

    def _count_processes(self) -> int:
        if self._spaces:
            return sum(name.isdecimal() for name in os.listdir("/proc"))
        return len(_descendant_pids())

    def _end_over_limit(self, limit: str) -> "NoReturn":
        try:
            self._control.send(b"limit " + limit.encode())
        except OSError:
            pass
        self.end()


def _send_signal(send_signal: "Callable[[int, int], None]", process: int, number: int) -> None:
    try:
        send_signal(process, number)
    except OSError:
        pass


def _socket_pair() -> tuple[_socket.socket, _socket.socket]:
    one, other = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    return one, other


def _install_descriptors(descriptors: list[tuple[int, int]], kept_socket: _socket.socket | None) -> None:
    """Put the received descriptors at their target numbers, and close all others."""
    high = max((target for _, target in descriptors), default=2) + 1
    moved = [(_move_descriptor(received, high), target) for received, target in descriptors]
    if kept_socket is not None:
        descriptor = _move_descriptor(kept_socket.detach(), high)
        _INIT_CHANNEL.append(descriptor)
    for received, target in moved:
        os.dup2(received, target)
        os.set_inheritable(target, True)
    targets = sorted({target for _, target in descriptors} | set(_INIT_CHANNEL))
    at = 0
    for target in targets:
        if at < target:  # Python 3.11 takes an empty range ending at 0 for all descriptors
            os.closerange(at, target)
        at = target + 1
    os.closerange(at, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


_INIT_CHANNEL: list[int] = []


def _move_descriptor(descriptor: int, min_descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, min_descriptor)


def _start_listener() -> None:
    """Install the tracing filter in this process, and send its descriptor to the world's first process."""
    (end,) = _INIT_CHANNEL
    channel = _socket.socket(fileno=end)
    try:
        traced = seccomp.trace_calls(calls.COMMANDS)
    except OSError as error:
        channel.send(str(error).encode()[:100] or b"?")
        channel.close()
        return
    channel.sendmsg([b"+"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("=i", traced))])
    channel.close()
    os.close(traced)


def _execvpe(words: list[bytes], environment: dict[bytes, bytes]) -> "NoReturn":
    """Like ``os.execvpe``, but exits with a shell's error message and status on failure."""
    name = words[0]
    folders = [b""] if b"/" in name else environment.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    why: int = errno.ENOENT
    for folder in folders:
        path = folder + b"/" + name if folder else name
        try:
            os.execve(path, words, environment)
        except OSError as error:
            if error.errno is not None and error.errno not in (errno.ENOENT, errno.ENOTDIR):
                why = error.errno
    os.write(2, name + b": " + os.fsencode(os.strerror(why)) + b"\n")
    os._exit(127 if why == errno.ENOENT else 126)


def _parents_by_pid() -> dict[int, int]:
    """The parent of each visible process."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                found[int(name)] = _parent_pid(name)
            except (OSError, ValueError, IndexError):
                continue
    return found


def _parent_pid(process: "int | str") -> int:
    """Raises OSError, ValueError or IndexError if there is no such process any more."""
    with open(f"/proc/{process}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def _descendant_pids() -> set[int]:
    children: dict[int, list[int]] = {}
    for process, parent in _parents_by_pid().items():
        children.setdefault(parent, []).append(process)
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        new = [process for process in children.get(waiting.pop(), ()) if process not in found]
        found.update(new)
        waiting += new
    return found


def _kill_descendants() -> bool:
    """Kill all descendants of this process; False if there were none."""
    stopped: set[int] = set()
    parents: set[int] = set()
    while True:  # stopped processes can't fork, so no new one is missed
        new = _descendant_pids() - stopped
        if not new:
            break
        parents = {os.getpid(), *stopped, *new}
        for process in new:
            _signal_child(process, parents, signal.SIGSTOP)
        stopped |= new
    for process in stopped:  # a stopped process keeps its number, but one that ended before may have lost it
        _signal_child(process, parents, signal.SIGKILL)
    return bool(stopped)


def _signal_child(process: int, parents: set[int], number: int) -> None:
    """Send a signal to a child of one of the parents, but not to a process outside that has got its number since."""
    try:
        descriptor = os.pidfd_open(process)
    except OSError:
        return
    try:
        if _parent_pid(process) in parents:
            signal.pidfd_send_signal(descriptor, number)
    except (OSError, ValueError, IndexError):
        pass
    finally:
        os.close(descriptor)


def _available_memory() -> int:
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return sys.maxsize
