"""Runs the battery once, as whoever starts it: ``battery.py MEANS FOLDER [NAME…]``; what got out is printed as JSON.

MEANS is ``namespaces``, ``landlock``, or ``none``: the last tries, without a confinement, those attempts that are
known to succeed then, so that it is known that the battery sees them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import glob
import hashlib
import json
import os
import secrets
import select
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from attempts import ATTEMPTS, PRELUDE, Attempt

from gonogo.confinement import world as world_module
from gonogo.confinement.confinement import Confinement
from gonogo.confinement.untrusted_files import read_untrusted
from gonogo.confinement.world import World

HERE = Path(__file__).parent
SECRET_FILES = (
    ".ssh/id_rsa", ".netrc", ".cache/huggingface/token", ".aws/credentials", ".git-credentials", ".docker/config.json",
    ".bash_history",
)  # fmt: skip
DRIVER_TIMEOUT = 120
"""Seconds: the driver kills an attempt after 20."""
HANG_TIMEOUT = 270
"""Seconds after which the battery says where it hangs, and ends with HANGS; it takes 10, on a busy machine 60."""
HANGS = 75
OPENED = 77
"""The descriptor at which a victim has a secret open."""
KERNEL_FILES = (
    "kernel/core_pattern", "kernel/panic", "kernel/hostname", "kernel/domainname", "vm/swappiness", "kernel/sysrq",
    "net/ipv4/ip_forward", "kernel/pid_max", "kernel/randomize_va_space",
)  # fmt: skip


def tree_state(folder: Path) -> dict[str, object]:
    """All that can be seen of a folder's files: contents, modes, owners, times (those of a change too), attributes."""
    found: dict[str, object] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        state = path.lstat()
        contents: object = None
        if stat.S_ISREG(state.st_mode):
            contents = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISLNK(state.st_mode):
            contents = os.readlink(path)
        elif stat.S_ISDIR(state.st_mode):
            contents = sorted(os.listdir(path))
        attributes = [] if stat.S_ISLNK(state.st_mode) else sorted(os.listxattr(path))
        found[str(path.relative_to(folder))] = (
            oct(state.st_mode), state.st_uid, state.st_gid, state.st_size, state.st_nlink, state.st_mtime_ns,
            state.st_ctime_ns, contents, attributes,
        )  # fmt: skip
    return found


class Servers:
    """Listen outside, on sockets and pipes of every kind, and note which attempt has come through."""

    def __init__(self, folder: Path, token: str) -> None:
        self.heard: set[str] = set()
        self.ports: dict[str, str] = {}
        self._sockets: dict[int, socket.socket] = {}
        self._pipes: list[int] = []
        self._ending, self._end = os.pipe()
        self._stream(socket.AF_INET, "TCP", ("0.0.0.0", 0))
        self._stream(socket.AF_INET6, "TCP6", ("::1", 0))
        self._stream(40, "VSOCK", (0xFFFFFFFF, 0xFFFFFFFF))
        self._bound(socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", 0), "UDP")
        for path in (folder / "stream", folder / "crowd" / "full" / "stream", f"\0gonogo-{token}"):
            self._stream(socket.AF_UNIX, "", path if isinstance(path, str) else str(path))
        self._bound(socket.AF_UNIX, socket.SOCK_DGRAM, str(folder / "datagram"))
        self._bound(socket.AF_UNIX, socket.SOCK_DGRAM, f"\0gonogo-{token}-d")
        packets = self._bound(socket.AF_UNIX, socket.SOCK_SEQPACKET, str(folder / "packets"))
        assert packets is not None
        packets.listen(16)
        for pipe in (folder / "pipe", folder / "crowd" / "full" / "pipe"):
            os.mkfifo(pipe, 0o666)
            self._pipes.append(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
        terminal, self._other_end = os.openpty()
        self.ports["PTY"] = os.ttyname(self._other_end)
        self._pipes.append(terminal)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _bound(self, family: int, kind: int, address: Any, name: str = "") -> socket.socket | None:
        try:
            one = socket.socket(family, kind)
            one.bind(address)
        except OSError:
            if family == socket.AF_UNIX:
                raise
            self.ports[name] = "9"
            return None
        if isinstance(address, str) and address.startswith("/"):
            os.chmod(address, 0o777)
        if name:
            self.ports[name] = str(one.getsockname()[1])
        self._sockets[one.fileno()] = one
        return one

    def _stream(self, family: int, name: str, address: Any) -> None:
        one = self._bound(family, socket.SOCK_STREAM, address, name)
        if one is not None:
            one.listen(64)

    def _listen(self) -> None:
        poll = select.poll()
        for descriptor in (self._ending, *self._sockets, *self._pipes):
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, event in poll.poll():
                if descriptor == self._ending:
                    return
                if descriptor in self._pipes:
                    self._note(os.read(descriptor, 4096))
                    continue
                one = self._sockets[descriptor]
                try:
                    if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        new, _ = one.accept()
                        self._sockets[new.fileno()] = new
                        poll.register(new, select.POLLIN)
                        continue
                    block = one.recv(4096)
                except OSError:
                    block = b""
                self._note(block)
                if not block or (event & select.POLLHUP and not block):
                    poll.unregister(descriptor)
                    self._sockets.pop(descriptor).close()

    def _note(self, block: bytes) -> None:
        self.heard.update(block.decode(errors="replace").split())

    def close(self) -> None:
        os.write(self._end, b"x")
        self._thread.join()


class Victim:
    """A process of the user's outside, with a secret in its variables, its arguments, and a descriptor."""

    def __init__(self, token: str, name: str, opened: Path, cwd: Path) -> None:
        with open(opened, "rb") as file:
            moved = os.dup2(file.fileno(), OPENED, inheritable=True)
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec -a victim-{token}-{name}-SECRET-ARGUMENT sleep 1000"],
                env={"SECRET": "SECRET-ENVIRON"}, cwd=cwd, pass_fds=[moved], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            os.close(moved)
        self.pid = self._process.pid
        deadline = time.monotonic() + 10
        while f"victim-{token}" not in _read(f"/proc/{self.pid}/cmdline") and time.monotonic() < deadline:
            time.sleep(0.005)
        self._before = self.state()

    def state(self) -> object:
        if self._process.poll() is not None:
            return f"ended with {self._process.returncode}"
        fields = _read(f"/proc/{self.pid}/stat").rpartition(")")[2].split()
        ran = "stopped" if fields[0] in "tTZ" else "runs"
        priority, nice, policy = fields[15], fields[16], fields[38]
        return (
            ran, priority, nice, policy, sorted(os.sched_getaffinity(self.pid)), _read(f"/proc/{self.pid}/limits"),
            _read(f"/proc/{self.pid}/oom_score_adj"), _io_priority(self.pid),
        )  # fmt: skip

    def changed(self) -> str:
        now = self.state()
        return "" if now == self._before else f"process {self._before} became {now}"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def _io_priority(pid: int) -> int:
    import ctypes

    number = 252 if os.uname().machine == "x86_64" else 31
    return int(ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_long(1), ctypes.c_long(pid)))


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""


class Battery:
    """One run."""

    def __init__(self, means: str, folder: Path, names: list[str]) -> None:
        self.means = means
        self.folder = folder
        self.token = secrets.token_hex(6)
        self.violations: dict[str, list[str]] = defaultdict(list)
        self.attempts = [
            attempt
            for attempt in ATTEMPTS
            if (not names or attempt.name in names)
            and (means != "none" or attempt.real)
            and (means != "landlock" or not attempt.only_namespaces)
        ]
        self.skipped: dict[str, str] = {}
        self.native = folder / "native"
        self._build()
        self._lay_out()

    def _build(self) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        why = "no C compiler"
        if compiler is not None:
            made = subprocess.run(
                [compiler, "-O1", "-o", str(self.native), str(HERE / "native.c")], capture_output=True, text=True
            )
            why = made.stderr[:300]
        if not self.native.exists():
            self.skipped |= {attempt.name: why for attempt in self.attempts if attempt.how == "native"}
            self.attempts = [attempt for attempt in self.attempts if attempt.how != "native"]

    def _lay_out(self) -> None:
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            database.execute("create table t (a)")
            database.execute("insert into t values (1)")
            database.commit()
            database.execute("vacuum into ?", (str(self.folder / "database"),))
        self.database = (self.folder / "database").read_bytes()
        self.home = self.folder / "home"
        self._secrets(self.home)
        for folder in ("elsewhere/kube", "W/crowd/full", "W/crowd/mounted", "markers", "scratch"):
            (self.folder / folder).mkdir(parents=True)
        (self.folder / "elsewhere/kube/config").write_text("SECRET-KUBE\n")
        (self.home / ".kube").symlink_to(self.folder / "elsewhere/kube")
        for number in range(600):
            (self.folder / f"W/crowd/{number}").mkdir()
        if os.environ.get("MOUNT_A_FOLDER"):
            subprocess.run(["mount", "-t", "tmpfs", "none", str(self.folder / "W/crowd/mounted")], check=True)
        for name, text in (("by-variable", "SECRET-VARIABLE"), ("opened", "SECRET-OPENED"), ("locked", "")):
            (self.folder / "W" / name).write_text(text)
        self.stdin = self.folder / "stdin"
        self.stdin.write_text("mine\n" * 100)
        (self.folder / "scratch/private").write_text("SECRET-PRIVATE\n")
        (self.folder / "scratch/worlds").mkdir()
        hub = self.folder / "hub"
        hub.mkdir()
        (hub / "token").write_text("SECRET-HUB\n")
        for attempt in self.attempts:
            self._marker(self.folder / "markers" / attempt.name)
            if "$SHM" in attempt.code:
                Path(self._shm(attempt)).write_text("SECRET-SHM\n")

    def _secrets(self, home: Path) -> None:
        for name in SECRET_FILES:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(f"SECRET-{name}\n")
        (home / ".bashrc").write_text("# mine\n")
        (home / ".config").mkdir()

    def _shm(self, attempt: Attempt) -> str:
        return f"/dev/shm/gonogo-{self.token}-{attempt.name}-marker"

    def _marker(self, folder: Path) -> None:
        (folder / "folder").mkdir(parents=True)
        (folder / "home").mkdir()
        (folder / "home" / ".bashrc").write_text("# mine\n")
        (folder / "home" / ".config").mkdir()
        (folder / "home" / ".ssh").mkdir()
        (folder / "file").write_text("mine\n")
        (folder / "exe").write_text("#!/bin/sh\n")
        (folder / "exe").chmod(0o755)
        (folder / "folder" / "inner").write_text("mine\n")
        (folder / "link").symlink_to("file")
        (folder / "cut").write_bytes(b"mine" * (1 << 14))
        git = folder / "repository" / ".git"
        for name in ("objects", "refs", "hooks"):
            (git / name).mkdir(parents=True)
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        (git / "config").write_text(
            '[core]\n\trepositoryformatversion = 0\n[remote "origin"]\n\turl = https://github.com/a/b\n'
        )
        (folder / "repository" / "untracked").write_text("mine\n")
        (folder / "db.sqlite").write_bytes(self.database)
        for path in (folder / "file", folder / "folder" / "inner"):
            os.utime(path, (1_000_000_000, 1_000_000_000))

    def run(self) -> dict[str, object]:
        os.environ["HOME"] = str(self.home)
        os.environ["HF_HOME"] = str(self.folder / "hub")
        os.environ["GOOGLE_APPLICATION_CREDENTIALS"] = str(self.folder / "W" / "by-variable")
        self.servers = Servers(self.folder / "W", self.token)
        self.victims = {
            attempt.name: Victim(self.token, attempt.name, self.folder / "W" / "opened", self.folder)
            for attempt in self.attempts
            if attempt.kind == "signal"
        }
        self.common = Victim(self.token, "common", self.folder / "W" / "opened", self.folder)
        before = {attempt.name: tree_state(self.folder / "markers" / attempt.name) for attempt in self.attempts}
        outside = self._outside()
        used = ""
        try:
            for confinement in self._worlds():
                used = confinement.means or ""
            time.sleep(0.3)
            self._judge(before, outside)
        finally:
            self.servers.close()
            for victim in (*self.victims.values(), self.common):
                victim.end()
            for path in self._left_behind():
                with contextlib.suppress(OSError):
                    os.unlink(path)
        return {
            "means": used,
            "ran": [attempt.name for attempt in self.attempts],
            "skipped": self.skipped,
            "missing": self.missing_tools(),
            "violations": self.violations,
        }

    def _worlds(self) -> Any:
        together = [attempt for attempt in self.attempts if not attempt.alone]
        groups = [together, *([attempt] for attempt in self.attempts if attempt.alone)]
        for number, group in enumerate(groups):
            if not group:
                continue
            scratch = self.folder / "scratch"
            if number:
                world_module._MAX_PROCESSES = 400  # so that a bomb is small
                scratch = self.folder / f"scratch{number}"
                scratch.mkdir()
            confinement = Confinement(scratch, unconfined=self.means == "none")
            with confinement.world() as world:
                self._go(world, confinement.shared, group)
                bomb = any(attempt.name.endswith("fork_bomb") for attempt in group)
                if bomb and not self._await(lambda: world.limit is not None, 60):
                    self.violations["(limits)"].append("no limit ended a fork bomb")
                self._look_at_alive(confinement.shared, group)
            yield confinement
            self._look_after(confinement.shared, group)

    def _await(self, what: Any, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not what():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def _environment(self, attempt: Attempt, shared: Path) -> dict[str, str]:
        marker = self.folder / "markers" / attempt.name
        own_home = attempt.kind in ("change", "delete")
        victim = self.victims.get(attempt.name, self.common)
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(marker / "home" if own_home else self.home),
            "HF_HOME": os.environ["HF_HOME"],
            "GOOGLE_APPLICATION_CREDENTIALS": os.environ["GOOGLE_APPLICATION_CREDENTIALS"],
            "N": attempt.name, "M": str(marker), "S": str(shared), "W": str(self.folder / "W"), "T": self.token,
            "V": str(victim.pid), "SHM": self._shm(attempt), "OWN": _own_address(), "GATEWAY": _gateway(),
            **self.servers.ports,
        }  # fmt: skip

    def _go(self, world: World, shared: Path, group: list[Attempt]) -> None:
        (shared / "out").mkdir()
        if self.native.exists():
            shutil.copy(self.native, shared / "native")
        shutil.copy(HERE / "driver.py", shared)
        (shared / "attempts.json").write_text(
            json.dumps(
                [
                    {"name": one.name, "how": one.how, "code": one.code, "prelude": PRELUDE,
                     "environment": self._environment(one, shared)}
                    for one in group
                ]
            ),
            encoding="utf-8",
        )  # fmt: skip
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
        words = [python, "-I", str(shared / "driver.py"), str(shared), *(one.name for one in group)]
        log = self.folder / f"driver-{group[0].name}"
        with open(self.stdin, "rb") as stdin, open(log, "wb") as stderr:
            process = subprocess.Popen(
                world.command(words),
                env=world.environment({"PATH": os.defpath, "T": self.token}),
                cwd="/",
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
            try:
                process.wait(DRIVER_TIMEOUT)
            except subprocess.TimeoutExpired:
                _end_hang(self)

    def _alive(self, shared: Path, name: str) -> bytes | None:
        return read_untrusted(shared / f"alive-{name}")

    def _look_at_alive(self, shared: Path, group: list[Attempt]) -> None:
        """That those which are to outlive the world did run."""
        if self.means != "none":
            return
        for attempt in group:
            if attempt.kind != "outlive" or not attempt.real:
                continue
            # Most of them empty the file before each write: a second look may find nothing in it.
            if self._await(lambda name=attempt.name: self._alive(shared, name), 30):
                self.violations[attempt.name].append("ran on")

    def _look_after(self, shared: Path, group: list[Attempt]) -> None:
        names = [attempt.name for attempt in group if attempt.kind == "outlive"]
        if names:
            before = {name: self._alive(shared, name) for name in names}
            time.sleep(0.5)
            for name in names:
                if before[name] != self._alive(shared, name):
                    self.violations[f"{name} (after the end)" if self.means == "none" else name].append("outlived")
        for attempt in group:
            out = read_untrusted(shared / "out" / attempt.name) or b""
            text = out.decode(errors="replace")
            for sign in ("GAINED", "SECRET-"):
                if sign in text:
                    at = text.index(sign)
                    self.violations[attempt.name].append(f"printed {text[at : at + 80]!r}")
            if any(sign in text for sign in ("command not found", ": not found")):
                self.skipped[attempt.name] = text[-200:]
        # Of thousands that were killed, the last are gone a moment later on a busy machine; what outlives it stays.
        latest = time.monotonic() + 10
        while (left := _processes_with(self.token)) and time.monotonic() < latest:
            time.sleep(0.2)
        if left:
            self.violations["(processes)"] += left

    def missing_tools(self) -> list[str]:
        return sorted(self.skipped)

    def _left_behind(self) -> list[str]:
        places = ("/tmp", "/var/tmp", "/dev/shm", "/etc", "/etc/cron.d", "/usr/local/bin", "/var/spool/cron")
        found = [path for place in places for path in glob.glob(f"{place}/gonogo-{self.token}*")]
        return (
            found + glob.glob(f"/var/spool/cron/{self.token}*") + glob.glob(f"/var/spool/cron/crontabs/{self.token}*")
        )

    def _outside(self) -> dict[str, object]:
        return {
            "kernel": {name: _read(f"/proc/sys/{name}") for name in KERNEL_FILES},
            "mounts": sorted(_read("/proc/self/mountinfo").splitlines()),
            "ipc": {name: _read(f"/proc/sysvipc/{name}").count("\n") for name in ("shm", "msg", "sem")},
            "home": tree_state(self.home),
            "elsewhere": tree_state(self.folder / "elsewhere"),
            "stdin": tree_state(self.stdin),
            "cgroups": len(glob.glob(f"/sys/fs/cgroup/**/gonogo-{self.token}", recursive=True)),
            "own priority": (os.getpriority(os.PRIO_PROCESS, 0), _io_priority(0)),
            "shm markers": {
                attempt.name: Path(self._shm(attempt)).read_text()
                for attempt in self.attempts
                if "$SHM" in attempt.code
            },
        }

    def _judge(self, before: dict[str, dict[str, object]], outside: dict[str, object]) -> None:
        for attempt in self.attempts:
            now = tree_state(self.folder / "markers" / attempt.name)
            was = before[attempt.name]
            for path in sorted({*was, *now}):
                if was.get(path) != now.get(path):
                    self.violations[attempt.name].append(f"{path}: {was.get(path)} became {now.get(path)}")
            if attempt.name in self.servers.heard:
                self.violations[attempt.name].append("reached a server")
            if attempt.name in self.victims and self.victims[attempt.name].changed():
                self.violations[attempt.name].append(self.victims[attempt.name].changed())
        if self.common.changed():
            self.violations["(common process)"].append(self.common.changed())
        for path in self._left_behind():
            owners = [attempt.name for attempt in self.attempts if f"-{attempt.name}" in path]
            if not path.endswith("-marker"):
                self.violations[owners[0] if owners else "(files)"].append(f"{path} was made")
        now = self._outside()
        for name, was in outside.items():
            if now[name] == was:
                continue
            if name == "shm markers":
                for attempt_name, text in was.items():  # type: ignore[attr-defined]
                    if now[name][attempt_name] != text:  # type: ignore[index]
                        self.violations[attempt_name].append("its shared memory changed")
                continue
            self.violations[f"({name})"].append(f"{was} became {now[name]}")


def _processes_with(token: str) -> list[str]:
    """The command line, state and kernel function of each process that has the token among its variables."""
    return [
        " ".join((
            _read(f"{process}/cmdline").replace("\0", " ")[:200],
            _read(f"{process}/stat").rpartition(")")[2][1:2],
            _read(f"{process}/wchan"),
        ))
        for process in glob.glob("/proc/[0-9]*")
        if f"\0T={token}\0" in "\0" + _read(f"{process}/environ") + "\0"
    ]  # fmt: skip


def _end_hang(battery: Battery) -> None:
    """Say where the battery hangs, and end it."""
    print("the battery hangs; its processes:", *_processes_with(battery.token)[:20], sep="\n", file=sys.stderr)
    faulthandler.dump_traceback()
    os._exit(HANGS)


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one, contextlib.suppress(OSError):
        one.connect(("192.0.2.1", 9))
        return str(one.getsockname()[0])
    return "127.0.0.1"


def _gateway() -> str:
    for line in _read("/proc/net/route").splitlines()[1:]:
        fields = line.split()
        if fields[1] == "00000000":
            return socket.inet_ntoa(int(fields[2], 16).to_bytes(4, "little"))
    return "192.0.2.1"


if __name__ == "__main__":
    made = Battery(sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3:])
    alarm = threading.Timer(HANG_TIMEOUT, _end_hang, [made])
    alarm.daemon = True
    alarm.start()
    print(json.dumps(made.run()))
