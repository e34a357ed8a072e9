"""What a program finds in a world: its own changes, its streams, signals and status, and limits that end it."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from battery import tree_state

from gonogo.confinement import world as world_module
from gonogo.confinement.confinement import CONFINEMENT_VARIABLE, Confinement
from gonogo.confinement.trees import remove_tree
from gonogo.confinement.untrusted_files import read_untrusted, write_shared
from gonogo.confinement.world import LAYER_LIMIT_VARIABLE, World
from gonogo.finding import UserError

Needs = Callable[[str, str], None]
MEANS = ("namespaces", "landlock", "none")
VARIABLES = {"PATH": os.defpath + ":/usr/sbin:/sbin", "HOME": "/"}
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable


@pytest.fixture
def world_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs: Needs) -> Callable[..., Any]:
    """Worlds by a means, all of one rehearsal."""
    made: dict[str, Confinement] = {}

    @contextmanager
    def make(means: str, **options: Any) -> Iterator[World]:
        if means != "none":
            needs(means, "self")
            monkeypatch.setenv(CONFINEMENT_VARIABLE, means)
        if means not in made:
            scratch = tmp_path / f"scratch-{means}"
            scratch.mkdir()
            made[means] = Confinement(scratch, unconfined=means == "none")
        with made[means].world(**options) as world:
            assert world.spec.means == means
            yield world

    return make


def run(world: World, *words: str, cwd: str = "/", variables: dict[str, str] | None = None, **options: Any) -> Any:
    descriptors = {number: number for number in options.get("pass_fds", ())}
    command = world.command(words, descriptors=descriptors, cwd=options.pop("inner_cwd", ""))
    environment = world.environment({**VARIABLES, **(variables or {})})
    if "stdin" not in options and "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, timeout=120, check=False, **options)


def shell(world: World, script: str, **options: Any) -> str:
    done = run(world, "bash", "-c", script, **options)
    return (done.stdout + done.stderr).decode().strip()


# -- what was changed is seen

SEEN = {
    "removed": ("rm file; ls", "exe folder link"),
    "moved": ("mv folder other; ls; cat other/inner", "exe file link other mine"),
    "made anew": ("rm -rf folder; mkdir folder; ls -A folder; ls", "exe file folder link"),
    "emptied and filled": ("rm -rf folder/*; touch folder/new; ls folder", "new"),
    "modes": ("chmod 640 file; stat -c %a file; chmod 700 folder; stat -c %a folder", "640 700"),
    "times": ("touch -d @1000 file; stat -c %Y file", "1000"),
    "appended": ("echo more >> file; cat file", "mine more"),
    "edited": ("sed -i s/mine/yours/ file; cat file", "yours"),
    "renamed over": ("mv exe file; ls; head -1 file", "file folder link #!/bin/sh"),
    "hard link": ("ln file hard; echo more >> hard; cat file; stat -c %h file", "mine more 2"),
    "links": ("ln -sfn folder link; cat link/inner; readlink link", "mine folder"),
    "a terabyte of nothing": ("truncate -s 1T large; stat -c '%s' large; [ $(stat -c %b large) -lt 99 ] && echo sparse",
                              "1099511627776 sparse"),
    "pipes": ("mkfifo pipe; (echo through > pipe &); cat pipe", "through"),
    "swapped": ("mv file x; mv exe file; mv x exe; cat exe; head -1 file", "mine #!/bin/sh"),
    "deep": ("mkdir -p a/b/c; echo x > a/b/c/d; mv a/b e; cat e/c/d; rmdir a; ls", "x e exe file folder link"),
    "copied": ("cp -a folder copy; rm -r folder; cat copy/inner", "mine"),
}  # fmt: skip

IN_PYTHON = r"""
import mmap, os, sqlite3
with open("file", "r+b") as file:
    file.truncate(8192)
    with mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:4] = b"ours"
assert open("file", "rb").read(4) == b"ours"
base = sqlite3.connect("db.sqlite")
base.execute("pragma journal_mode=wal")
base.execute("insert into t values (2)")
base.commit()
base.close()
assert sqlite3.connect("db.sqlite").execute("select count(*) from t").fetchone() == (2,)
import errno, shutil
try:
    os.rename("folder", "new")  # as between two disks: overlayfs of a user namespace says so of folders that were there
except OSError as error:
    assert error.errno == errno.EXDEV
    shutil.move("folder", "new")
os.makedirs("folder")
assert os.listdir("folder") == [] and os.listdir("new") == ["inner"]
os.setxattr("file", "user.mine", b"1")
assert os.getxattr("file", "user.mine") == b"1"
before = os.stat("exe")
os.link("exe", "exe2")
assert os.stat("exe").st_nlink == os.stat("exe2").st_nlink == before.st_nlink + 1
with open("exe2", "a") as file:
    file.write("more")
assert open("exe").read().endswith("more")
os.replace("new/inner", "exe")
print(open("exe").read().strip(), sorted(os.listdir(".")))
"""


def lay_out(folder: Path) -> Path:
    import sqlite3

    (folder / "folder").mkdir(parents=True)
    (folder / "file").write_text("mine\n")
    (folder / "exe").write_text("#!/bin/sh\n")
    (folder / "folder" / "inner").write_text("mine\n")
    (folder / "link").symlink_to("file")
    if folder.name == "python":
        base = sqlite3.connect(folder / "db.sqlite")
        base.execute("create table t (a)")
        base.execute("insert into t values (1)")
        base.commit()
        base.close()
    return folder


def test_programs_see_what_they_changed(world_of: Any, tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in (*SEEN, "python"):
        lay_out(project / name)
    before = tree_state(project)
    with world_of("namespaces") as world:
        seen = {name: shell(world, script, cwd=str(project / name)) for name, (script, _) in SEEN.items()}
        python = run(world, PYTHON, "-c", IN_PYTHON, cwd=str(project / "python"))
        # And the next program of the same world does.
        assert shell(world, "ls removed; cat appended/file", cwd=str(project)).split() == [
            "exe",
            "folder",
            "link",
            "mine",
            "more",
        ]
    assert {name: text.split() for name, text in seen.items()} == {
        name: expected.split() for name, (_, expected) in SEEN.items()
    }
    assert python.returncode == 0, python.stderr.decode()
    assert python.stdout.decode().startswith("mine ")
    assert tree_state(project) == before
    assert world.limit is None


def test_worlds_are_stacked(world_of: Any, tmp_path: Path) -> None:
    project = lay_out(tmp_path / "project")
    before = tree_state(project)
    with world_of("namespaces") as first:
        shell(first, "rm file; rm -rf folder; mkdir folder; echo one > folder/new; echo one > both", cwd=str(project))
    with world_of("namespaces", below=[first.tree]) as second:
        assert shell(second, "ls . folder; cat both", cwd=str(project)).split() == [
            ".:", "both", "exe", "folder", "link", "folder:", "new", "one",
        ]  # fmt: skip
        shell(second, "echo two > both; rm exe; echo two > file", cwd=str(project))
    with world_of("namespaces", below=[first.tree, second.tree]) as third:
        assert shell(third, "ls; cat both file folder/new", cwd=str(project)).split() == [
            "both", "file", "folder", "link", "two", "two", "one",
        ]  # fmt: skip
    with world_of("namespaces") as apart:
        assert shell(apart, "cat file folder/inner", cwd=str(project)).split() == ["mine", "mine"]
    assert tree_state(project) == before


def test_made_files_are_seen_before_real_ones(world_of: Any, tmp_path: Path) -> None:
    project = lay_out(tmp_path / "project")
    made = tmp_path / "made"
    place = made / project.relative_to("/")
    (place / "data").mkdir(parents=True)
    (place / "data" / "rows").write_text("made\n")
    (place / "file").write_text("made\n")
    before = tree_state(made), tree_state(project)
    with world_of("namespaces", prepared=made) as world:
        assert shell(world, "cat data/rows file folder/inner", cwd=str(project)).split() == ["made", "made", "mine"]
        shell(world, "rm -r data; echo x >> file", cwd=str(project))
    with world_of("namespaces", below=[world.tree], prepared=made) as later:
        assert shell(later, "ls; cat file", cwd=str(project)).split() == ["exe", "file", "folder", "link", "made", "x"]
    assert (tree_state(made), tree_state(project)) == before


def test_landlock_lets_a_program_write_what_is_shared(world_of: Any, tmp_path: Path) -> None:
    project = lay_out(tmp_path / "project")
    with world_of("landlock") as world:
        assert not world.has_overlay
        shared = str(world.spec.shared[0])
        script = "echo x > new; mkdir a; mv new a/b; chmod 600 a/b; cat a/b; rm -r a; ls -A"
        assert shell(world, script, cwd=shared) == "x"
        assert "ermission denied" in shell(world, "echo x >> file", cwd=str(project))
        assert shell(world, "cat file; chmod 777 file && stat -c %a file", cwd=str(project)).split() == ["mine", "644"]
        code = (
            "import multiprocessing as m, socket, subprocess, os, threading\n"
            "if __name__ == '__main__':\n"
            " a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'\n"
            " r, w = m.Pipe()\n"
            " p = m.get_context('fork').Process(target=w.send, args=('there',)); p.start(); print(r.recv())\n"
            " p.join(); os.kill(os.getpid(), 0); print(subprocess.check_output(['echo', 'child']).decode().strip())\n"
        )
        assert shell(world, f'{PYTHON} -c "$CODE"', variables={"CODE": code}).split() == ["there", "child"]


# -- a program is as it would be without


@pytest.mark.parametrize("means", MEANS)
def test_status_streams_and_variables(world_of: Any, tmp_path: Path, means: str) -> None:
    with world_of(means) as world:
        for status in (0, 1, 3, 126, 255):
            assert run(world, "bash", "-c", f"exit {status}").returncode == status
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
            assert run(world, "bash", "-c", f"kill -{int(number)} $$").returncode == -number
        assert run(world, "no-such-program").returncode == 127
        assert run(world, "/etc/passwd").returncode == 126
        large = os.urandom(5 << 20)
        assert run(world, "cat", input=large).stdout == large
        both = run(world, "bash", "-c", "echo out; echo err >&2")
        assert (both.stdout, both.stderr) == (b"out\n", b"err\n")
        many = {f"V{number}": "x" * 10_000 for number in range(100)}
        odd = {"LINES": "a\nb\n", "EMPTY": "", "BYTES": os.fsdecode(b"\xff\xfe"), "a.b-c": "1", "_": "x"}
        printed = run(world, "env", "-0", variables={**many, **odd}).stdout.split(b"\0")
        expected = {**VARIABLES, **many, **odd}
        assert sorted(entry for entry in printed if entry) == sorted(
            os.fsencode(f"{name}={value}") for name, value in expected.items()
        )
        words = ["", "a b", "a\nb", os.fsdecode(b"\xff"), "--", *map(str, range(2000)), "x" * 100_000]
        assert run(world, "printf", "%s\\0", *words).stdout == b"".join(os.fsencode(word) + b"\0" for word in words)
        assert shell(world, "umask") == subprocess.check_output(["bash", "-c", "umask"], text=True).strip()


@pytest.mark.parametrize("means", MEANS)
def test_folders_and_descriptors(world_of: Any, tmp_path: Path, means: str) -> None:
    with world_of(means) as world:
        for name in ("a b", "new\nline", "c:d,e\\f", os.fsdecode(b"\xff\xfe"), "-n", "x" * 200):
            (tmp_path / name).mkdir()
            done = run(world, "pwd", cwd=str(tmp_path / name))
            assert done.stdout == os.fsencode(tmp_path / name) + b"\n"
        if world.has_overlay:
            shell(world, "mkdir -p only/here", cwd=str(tmp_path))
            assert shell(world, "pwd", inner_cwd=f"{tmp_path}/only/here") == f"{tmp_path}/only/here"
        assert run(world, "pwd", inner_cwd=f"{tmp_path}/nowhere").returncode == 126
        reading, writing = os.pipe()
        far = os.dup2(writing, 200)
        assert run(world, "bash", "-c", "echo x >&200", pass_fds=[far]).returncode == 0
        assert os.read(reading, 9) == b"x\n"
        for descriptor in (reading, writing, far):
            os.close(descriptor)


@pytest.mark.parametrize("means", MEANS)
def test_descriptors_do_not_lead_out(world_of: Any, tmp_path: Path, means: str) -> None:
    file = tmp_path / "file"
    file.write_text("mine\n" * 1000)
    with world_of(means) as world:
        with open(file, "rb") as stdin:
            stdin.seek(5)
            assert shell(world, "head -c 5; echo owned > /proc/self/fd/0; : > /dev/stdin", stdin=stdin) == "mine"
        assert file.read_text() == "mine\n" * 1000
        large = tmp_path / "large"
        with open(large, "wb") as made:
            made.truncate(70 << 20)
        with open(large, "rb") as stdin:
            assert shell(world, "wc -c; echo owned > /dev/stdin 2> /dev/null", stdin=stdin) == str(70 << 20)
        assert large.stat().st_size == 70 << 20
        folder = os.open(tmp_path, os.O_RDONLY)
        done = run(world, "true", pass_fds=[folder])
        os.close(folder)
        assert (done.returncode, b"is a folder" in done.stderr) == (126, True)
        assert run(world, "bash", "-c", "cat <&-; echo still", stdin=subprocess.DEVNULL).stdout == b"still\n"


@pytest.mark.parametrize("means", MEANS)
def test_signals(world_of: Any, means: str) -> None:
    with world_of(means) as world:
        environment = world.environment(VARIABLES)
        traps = "trap 'echo got; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
        process = subprocess.Popen(
            world.command(["bash", "-c", traps]), env=environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert (process.stdout.read(), process.wait()) == ("got\n", 7)
        process = subprocess.Popen(
            world.command(["bash", "-c", "sleep 1000 & echo $$; wait"]),
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        inner = int(process.stdout.readline())
        process.kill()
        process.wait()
        assert process.stdout.read() == ""  # the whole group has ended, and let go of the pipe
        process = subprocess.Popen(
            world.command(["bash", "-c", "echo $$; exec sleep 1000"]),
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        inner = int(process.stdout.readline())
        world.signal(inner, signal.SIGUSR1)
        assert process.wait(20) == -signal.SIGUSR1
        process = subprocess.Popen(world.command(["sleep", "1000"]), env=environment)
    assert process.wait(20) in (137, -9)


def test_variables_of_a_program_are_not_those_of_its_relay(world_of: Any, tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    marker = tmp_path / "loaded"
    source = tmp_path / "evil.c"
    source.write_text(
        "#include <fcntl.h>\n__attribute__((constructor)) static void loaded(void) "
        f'{{ open("{marker}", O_CREAT | O_WRONLY, 0600); }}\n'
    )
    library = tmp_path / "evil.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    with world_of("namespaces") as world:
        variables = {"LD_PRELOAD": str(library), "PYTHONHOME": "/nowhere", "PYTHONSTARTUP": str(library)}
        assert shell(world, f"ls {marker}; echo $LD_PRELOAD", variables=variables).split() == [
            str(marker),
            str(library),
        ]
        assert not marker.exists()
        done = subprocess.run(world.command(["true"]), env=VARIABLES, capture_output=True, check=False)
        assert (done.returncode, b"World.environment" in done.stderr) == (126, True)


def test_few_files_may_be_open(world_of: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with world_of("namespaces") as world:
            assert shell(world, "ulimit -n; ls /proc/self/fd").split() == ["256", "0", "1", "2", "3"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- ends and limits


@pytest.mark.parametrize(
    ("module_limit", "value", "script"),
    [
        ("_MAX_PROCESSES", 60, "for i in $(seq 200); do sleep 100 & done; wait"),
        ("_MIN_MEMORY_BYTES", 1 << 50, "sleep 100"),
        (
            "_MIN_MEMORY_BYTES",
            1 << 50,
            "while :; do (true &); done",
        ),  # the world's first process always has one to reap
    ],
)
@pytest.mark.parametrize("means", ["namespaces", "landlock"])
def test_a_limit_ends_the_world(
    world_of: Any, monkeypatch: pytest.MonkeyPatch, means: str, module_limit: str, value: int, script: str
) -> None:
    monkeypatch.setattr(world_module, module_limit, value)
    with world_of(means) as world:
        assert run(world, "bash", "-c", script).returncode in (137, -9)
        deadline = time.monotonic() + 10
        while world.limit is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert world.limit is not None
        assert ("60 processes" if value == 60 else "MiB of memory") in world.limit.en


def test_what_is_written_is_limited(world_of: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(LAYER_LIMIT_VARIABLE, "0.01")
    with world_of("namespaces") as world:
        shell(world, "truncate -s 1T sparse; echo still", cwd=str(tmp_path))
        time.sleep(1.2)
        assert world.limit is None
        done = run(
            world, "bash", "-c", "dd if=/dev/zero of=full bs=1M count=30 status=none; sleep 100", cwd=str(tmp_path)
        )
        assert done.returncode in (137, -9)
        assert world.limit is not None
        assert "0.01 GiB" in world.limit.en
    for wrong in ("much", "-1", "nan", "0"):
        monkeypatch.setenv(LAYER_LIMIT_VARIABLE, wrong)
        with pytest.raises(UserError, match=LAYER_LIMIT_VARIABLE), world_of("namespaces"):
            pass


_HOLDS_A_WORLD = """
import os, subprocess, sys, time
from pathlib import Path
from gonogo.confinement.confinement import Confinement
with Confinement(Path(sys.argv[1]), unconfined=sys.argv[2] == "none").world() as world:
    script = ("setsid sleep 1000 & (setsid bash -c 'trap : TERM HUP; while :; do sleep 1; done' &); "
              "echo started; sleep 1000")
    environment = world.environment({"PATH": os.defpath, "TOKEN": sys.argv[1]})
    subprocess.Popen(world.command(["bash", "-c", script]), env=environment)
    time.sleep(1000)
"""


def processes_of(token: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"TOKEN={token}".encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text())
    return found


@pytest.mark.parametrize("means", MEANS)
def test_all_ends_when_gonogo_is_killed(tmp_path: Path, needs: Needs, means: str) -> None:
    if means != "none":
        needs(means, "self")
    variables = {**os.environ, CONFINEMENT_VARIABLE: means} if means != "none" else dict(os.environ)
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDS_A_WORLD, str(tmp_path), means],
        env=variables, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    deadline = time.monotonic() + 10
    while len(processes_of(str(tmp_path))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(processes_of(str(tmp_path))) >= 3
    process.kill()
    killed = time.monotonic()
    while processes_of(str(tmp_path)) and time.monotonic() < killed + 10:
        time.sleep(0.02)
    assert processes_of(str(tmp_path)) == []
    process.wait()


# -- odd places


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "a:b",
        "a,b",
        "a\\b",
        "a\nb",
        os.fsdecode(b"\xff\xfe"),
        "é" * 80,
        "x" * 240 + "/" + "y" * 240 + "/" + "z" * 240,
    ],
    ids=["space", "colon", "comma", "backslash", "newline", "bytes", "accents", "long"],
)
@pytest.mark.parametrize("means", MEANS)
def test_temporary_folders_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs: Needs, means: str, name: str
) -> None:
    if means != "none":
        needs(means, "self")
        monkeypatch.setenv(CONFINEMENT_VARIABLE, means)
    scratch = tmp_path / name
    scratch.mkdir(parents=True)
    confinement = Confinement(scratch, unconfined=means == "none")
    project = lay_out(tmp_path / "project")
    with confinement.world() as world:
        done = run(
            world,
            "bash",
            "-c",
            'echo seen > "$S/file"; echo x > new; ls',
            cwd=str(project),
            variables={"S": str(confinement.shared)},
        )
        assert done.returncode == 0, done.stderr
    assert read_untrusted(confinement.shared / "file") == b"seen\n"
    if means == "namespaces":
        assert not (project / "new").exists()
        with confinement.world(below=[world.tree]) as later:
            assert shell(later, "cat new", cwd=str(project)) == "x"


@pytest.mark.parametrize("home", ["/nowhere", ""])
@pytest.mark.parametrize("means", MEANS)
def test_a_user_without_a_home(world_of: Any, monkeypatch: pytest.MonkeyPatch, means: str, home: str) -> None:
    monkeypatch.setenv("HOME", home)
    with world_of(means) as world:
        assert shell(world, "echo here") == "here"


_MANAGER = """
from multiprocessing import Manager
if __name__ == "__main__":
    with Manager() as manager:
        print(len(manager.list([1, 2])))
"""


@pytest.mark.parametrize("length", [20, 150])
def test_sockets_below_a_long_tmpdir(length: int, world_of: Any, needs: Needs, tmp_path: Path) -> None:
    """The kernel refuses a socket's path of more than 107 bytes, which programs make of TMPDIR."""
    needs("namespaces", "self")
    scratch = tmp_path / ("long" * length)[:length]
    scratch.mkdir()
    confinement = Confinement(scratch)
    folder = confinement.shared / "rank-0-12345678" / "caches" / "tmp"
    folder.mkdir(parents=True)
    program = tmp_path / "program.py"
    program.write_text(_MANAGER)
    short = confinement.short_path(folder)
    with confinement.world() as world:
        done = run(world, PYTHON, str(program), variables={"TMPDIR": str(short)})
        assert done.stdout == b"2\n", done.stderr.decode()
    del confinement, world
    assert short.is_relative_to(tmp_path) or not short.parents[2].exists()


_NESTED = """
import os, subprocess, sys, tempfile
from pathlib import Path
from gonogo.confinement.confinement import Confinement
from gonogo.finding import UserError
os.environ.pop("GONOGO_CONFINEMENT", None)
scratch = Path(tempfile.mkdtemp(dir=sys.argv[1]))
try:
    with Confinement(scratch).world() as world:
        done = subprocess.run(world.command(["bash", "-c", "echo inner"]), env=world.environment({"PATH": os.defpath}),
                              capture_output=True, text=True)
        print(world.spec.means, done.stdout, done.stderr, done.returncode)
except UserError as error:
    print("refused:", error)
"""


def test_a_world_in_a_world(world_of: Any, needs: Needs) -> None:
    needs("landlock", "self")
    variables = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    with world_of("namespaces") as world:
        printed = shell(
            world, '"$0" -c "$CODE" /tmp'.replace("$0", sys.executable), variables={**variables, "CODE": _NESTED}
        )
        assert printed.split() == ["landlock", "inner", "0"]
    with world_of("landlock") as world:
        shared = str(world.spec.shared[0])
        printed = shell(
            world,
            f'"{sys.executable}" -c "$CODE" "{shared}"',
            variables={**variables, "CODE": _NESTED, "TMPDIR": shared},
        )
        assert printed.startswith("refused: ")
        assert "confinement by Landlock already" in printed
        assert "--unconfined" in printed


# -- the third means


def test_without_a_means_no_line_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONFINEMENT_VARIABLE, "none")
    with pytest.raises(UserError, match="--unconfined") as raised, Confinement(tmp_path).world():
        pytest.fail("a world was made")
    assert "GONOGO_CONFINEMENT=none" in str(raised.value)
    monkeypatch.setenv(CONFINEMENT_VARIABLE, "docker")
    with pytest.raises(UserError, match="GONOGO_CONFINEMENT=docker"), Confinement(tmp_path).world():
        pytest.fail("a world was made")


# -- what programs leave for gonogo


def test_files_of_strangers_are_read_as_such(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "file").write_text("secret")
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "file").write_text("theirs")
    (shared / "link").symlink_to(private / "file")
    (shared / "folder").symlink_to(private)
    (shared / "closed").write_text("x")
    (shared / "closed").chmod(0)
    os.mkfifo(shared / "pipe")
    assert read_untrusted(shared / "file") == b"theirs"
    assert read_untrusted(shared / "file", most=3) is None
    for name in ("link", "folder/file", "pipe", "nothing", "folder", "file/below", "x" * 300):
        assert read_untrusted(shared / name) is None, name
    if os.geteuid():
        assert read_untrusted(shared / "closed") is None
    for name in ("link", "pipe", "file", "new"):
        write_shared(shared / name, b"ours")
        assert read_untrusted(shared / name) == b"ours"
        assert not (shared / name).is_symlink()
    with pytest.raises(OSError, match="folder"):
        write_shared(shared / "folder" / "new", b"ours")
    assert (private / "file").read_text() == "secret"
    assert os.listdir(private) == ["file"]


def test_whatever_a_program_left_is_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").write_text("mine")
    before = tree_state(outside)
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d" * 50, dir_fd=here)
        below = os.open("d" * 50, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (top / "link").symlink_to(outside)
    (top / "closed" / "inner").mkdir(parents=True)
    (top / "closed" / "inner" / "file").write_text("x")
    os.chmod(top / "closed" / "inner", 0)
    os.chmod(top / "closed", 0)
    os.mkfifo(top / "pipe")
    remove_tree(top)
    assert not top.exists()
    assert tree_state(outside) == before
