"""Healthy programs, and the same in a world that lacks something: none of their failures is the real run's.

A program is put together of a way to get something (a file, a module, a library, a program, a host, another rank's
file, an unknown value), a place where that stands, and a way to use it. In its own world it runs. Then the world is
changed: the thing is gone, a package is of another release, the Python is not the one that is asked for, an unknown
value is the other one. The program runs in this process, with what a rehearsal takes down about it, and no torch in it:
hundreds a minute.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import textwrap
import types
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo.evidence.rehearsal.record import AcceleratorFacts, Assumption, Failure, RankRecord, RehearsalRecord
from gonogo.rehearse.limits.certificate import apply_limits
from gonogo.rehearse.limits.world import ProjectWorld
from gonogo.virtual.internal_failures import exception_chain
from gonogo.virtual.lookups import failed_lookups as asked_in_vain
from gonogo.virtual.lookups import probe_reporting
from gonogo.virtual.operands import missing_paths
from gonogo.virtual.sandbox import network
from gonogo.virtual.stack import frames_of_traceback

_IMPORTS = """\
import configparser, contextlib, ctypes, glob, importlib, importlib.metadata, importlib.util, json, os
import pathlib, shutil, socket, sqlite3, subprocess, sys, zipfile
import numpy as np
"""

# Each makes `got` a dict with "n", where the world has what it asks for; `None` or an exception where it has not.
GETTING: dict[str, tuple[str, ...]] = {
    "file": (
        'with open("data/rows.json") as file:\n    got = json.load(file)',
        'got = json.loads(pathlib.Path("data/rows.json").read_text())',
        'got = json.load(open("data/rows.json")) if os.path.exists("data/rows.json") else None',
        'got = None\nif pathlib.Path("data/rows.json").is_file():\n    got = json.load(open("data/rows.json"))',
        'try:\n    got = json.load(open("data/rows.json"))\nexcept Exception:\n    got = None',
        'found = glob.glob("data/*.json")\ngot = json.load(open(found[0])) if found else None',
        'found = list(pathlib.Path("data").glob("*.json"))\ngot = json.loads(found[0].read_text()) if found else None',
        'names = os.listdir("data") if os.path.isdir("data") else []\ngot = {"n": 1} if "rows.json" in names else None',
        'got = {"n": 2} if any(e.name.endswith(".json") for e in os.scandir("data")) else None',
        'got = {"n": int(np.load("data/rows.npy")[0])}',
        'if not os.access("data/rows.json", os.R_OK):\n    raise RuntimeError("bad set-up")\ngot = {"n": 1}',
        'got = {"n": os.stat("data/rows.json").st_size}',
        'got = {"n": len(np.fromfile("data/rows.npy"))}',
        'rows = sqlite3.connect("data/rows.sqlite").execute("select n from rows").fetchall()\ngot = {"n": rows[0][0]}',
        'parser = configparser.ConfigParser()\nparser.read("data/rows.ini")\n'
        'got = {"n": len(parser.sections())} if parser.sections() else None',
        'found = [one for _, _, names in os.walk("data") for one in names]\ngot = {"n": len(found)} if found else None',
        'got = {"n": 1} if zipfile.is_zipfile("data/rows.zip") else None',
        'got = {"n": os.path.getsize("data/rows.json")}',
        'got = None\nwith contextlib.suppress(OSError):\n    got = json.load(open("data/rows.json"))',
        'sizes = {path.name: path.stat().st_size for path in sorted(pathlib.Path("data").rglob("*.json"))}\n'
        'got = {"n": max(sizes.values(), default=0)} if sizes else None',
    ),
    "module": (
        "import extras_of_run\ngot = extras_of_run.VALUE",
        "try:\n    import extras_of_run\nexcept ImportError:\n    extras_of_run = None\ngot = extras_of_run.VALUE",
        "try:\n    from extras_of_run import VALUE as got\nexcept ImportError:\n    got = None",
        'has = importlib.util.find_spec("extras_of_run") is not None\n'
        'got = importlib.import_module("extras_of_run").VALUE if has else None',
        'try:\n    got = importlib.import_module("extras_of_run").VALUE\nexcept Exception:\n    got = None',
        "HAS = True\ntry:\n    import extras_of_run\nexcept ModuleNotFoundError:\n    HAS = False\n"
        "got = extras_of_run.VALUE if HAS else None",
        'try:\n    release = importlib.metadata.version("extras_of_run")\n'
        "except importlib.metadata.PackageNotFoundError:\n    release = None\n"
        'got = {"n": len(release)} if release else None',
        'named = [one.metadata["Name"] for one in importlib.metadata.distributions(name="extras_of_run")]\n'
        'got = {"n": 1} if named else None',
    ),
    "program": (
        'got = {"n": 1 + subprocess.run(["tool-of-run"]).returncode}',
        'got = {"n": 1} if shutil.which("tool-of-run") else None',
        'got = {"n": len(subprocess.check_output(["tool-of-run"]))}',
        'try:\n    got = {"n": 1 + subprocess.call(["tool-of-run"])}\nexcept OSError:\n    got = None',
        'done = subprocess.run("tool-of-run", shell=True, capture_output=True)\n'
        'got = {"n": 1} if done.returncode == 0 else None',
        'text = os.popen("tool-of-run").read()\ngot = {"n": len(text)} if text else None',
        'got = {"n": 1} if os.system("tool-of-run") == 0 else None',
    ),
    "library": (
        'ctypes.CDLL(os.environ["LIBRARY_OF_RUN"])\ngot = {"n": 1}',
        'try:\n    got = {"n": 1 if ctypes.CDLL(os.environ["LIBRARY_OF_RUN"]) else 0}\nexcept OSError:\n    got = None',
        'def load():\n    for name in (os.environ["LIBRARY_OF_RUN"],):\n        try:\n'
        "            return ctypes.CDLL(name)\n"
        '        except OSError:\n            continue\n    raise RuntimeError("no kernel library")\n\n\n'
        'load()\ngot = {"n": 1}',
    ),
    "address": (
        'got = {"n": len(socket.getaddrinfo(os.environ["HOST_OF_RUN"], 80))}',
        'try:\n    got = {"n": len(socket.gethostbyname(os.environ["HOST_OF_RUN"]))}\nexcept OSError:\n    got = None',
    ),
    "ranks": (
        'open("out/part-0.json", "w").write("{}")\nparts = glob.glob("out/part-*.json")\n'
        'got = {"n": len(parts)} if len(parts) == 2 else None',
        'open("out/part-0.json", "w").write("{}")\ngot = {"n": len(open("out/part-1.json").read())}',
        'open("out/part-0.json", "w").write("{}")\nnames = [n for n in os.listdir("out") if n.startswith("part")]\n'
        'assert len(names) == 2, "parts are missing"\ngot = {"n": 2}',
        'open("out/part-0.json", "w").write("{}")\ndone = [os.path.exists(f"out/part-{i}.json") for i in range(2)]\n'
        'if not all(done):\n    raise RuntimeError(f"{done.count(True)} of 2")\ngot = {"n": 2}',
    ),
    "assumed": (
        "value = unknown()\ngot = None if value > 10 else {'n': value}",
        "bad = 1\nfor step in range(3):\n    if unknown() > 10:\n        bad += 1\n"
        "got = None if bad > 2 else {'n': bad}",
        "stop = False\nwhile not stop:\n    stop = True\n    if unknown() > 10:\n        break\nelse:\n    pass\n"
        "got = {'n': 1} if not unknown() > 10 else None",
    ),
    "package": ('got = {"n": 1} if RELEASE == "1.0" else None',),
    "python": ('got = {"n": 1} if PYTHON >= (3, 99) else None',),
}

# Where that stands.
PLACES: dict[str, str] = {
    "at the top": "{getting}\n",
    "in a function": "def get():\n{indented}\n    return got\n\n\ngot = get()\n",
    "in a class": (
        "class Source:\n    def __init__(self):\n        self.kept = self.find()\n\n    def find(self):\n{more}\n"
        "        return got\n\n\ngot = Source().kept\n"
    ),
    "in another file": "import loader_of_run\ngot = loader_of_run.get()\n",
    "behind a default": (
        "def get():\n{indented}\n    return got\n\n\nsettings = {{'rows': get()}}\ngot = settings['rows']\n"
    ),
}

USES: dict[str, str] = {
    "at once": 'print(got["n"] + 1)\n',
    "in a call": 'def use(rows):\n    return rows["n"] + 1\n\n\nprint(use(got))\n',
    "on an object": (
        "class Model:\n    def __init__(self, rows):\n        self.statistics = rows\n\n"
        '    def forward(self, x):\n        return x / self.statistics["n"]\n\n\n'
        "model = Model(got)\nprint(model.forward(2))\n"
    ),
    "by a flag": (
        'ready = got is not None\nnames = ["a"]\nif len(names) > 4:\n    names.pop()\n'
        'if not ready:\n    raise RuntimeError("stopped")\n'
    ),
    "by an assertion": 'assert got, "not as it should be"\n',
    "in a table": 'table = {}\ntable["rows"] = got\ntotal = sum(table["rows"].values())\n',
    "by its type": "def total(rows):\n    if isinstance(rows, dict):\n        return 1\n\n\nprint(total(got) + 1)\n",
    "after a return": (
        "def prepare(rows):\n    if rows is None:\n        return None\n    return [1]\n\n\nprint(len(prepare(got)))\n"
    ),
}


@dataclass(frozen=True)
class World:
    """A program, by what it is put together of."""

    lacks: str
    getting: str
    place: str
    use: str

    @property
    def name(self) -> str:
        return f"{self.lacks}: {self.getting.splitlines()[0]} … {self.place}, {self.use}"

    def write(self, folder: Path) -> None:
        """Write its files, in a folder in which nothing of its world is yet."""
        inside = textwrap.indent(self.getting, "    ")
        (folder / "loader_of_run.py").write_text(f"{_IMPORTS}\n\ndef get():\n{inside}\n    return got\n")
        text = PLACES[self.place].format(
            getting=self.getting, indented=inside, more=textwrap.indent(self.getting, "        ")
        )
        (folder / "train.py").write_text(f"{_IMPORTS}\n{text}\n{USES[self.use]}")
        requirement = "declared_of_run==1.0\n" if self.lacks == "package" else "extras_of_run\nnumpy\n"
        (folder / "requirements.txt").write_text(requirement)
        python = ">=3.99" if self.lacks == "python" else ">=3.8"
        (folder / "pyproject.toml").write_text(f'[project]\nname = "x"\nversion = "0"\nrequires-python = "{python}"\n')
        (folder / "out").mkdir()
        (folder / ".git").mkdir()  # the project ends here


def all_worlds(seed: int = 7) -> list[World]:
    """Every program that can be put together, in an order that the seed decides."""
    found = [
        World(lacks, getting, place, use)
        for lacks, ways in GETTING.items()
        for getting in ways
        for place in PLACES
        for use in USES
        # A file of the program's own has neither the values of the rehearsal's nor the release's.
        if not (place == "in another file" and lacks in ("assumed", "package", "python"))
        if not (place == "in a class" and getting.startswith("def "))
    ]
    random.Random(seed).shuffle(found)
    return found


def healthy(world: World, folder: Path) -> BaseException | None:
    """How the program ends where its world has all that it asks for: None."""
    (folder / "data").mkdir()
    (folder / "data" / "rows.json").write_text('{"n": 3}')
    (folder / "data" / "rows.npy").write_bytes(_array())
    _database(folder / "data" / "rows.sqlite")
    (folder / "data" / "rows.ini").write_text("[rows]\nn = 3\n")
    with zipfile.ZipFile(folder / "data" / "rows.zip", "w") as archive:
        archive.writestr("rows.json", "{}")
    (folder / "site").mkdir()
    (folder / "site" / "extras_of_run.py").write_text('VALUE = {"n": 4}\n')
    (metadata := folder / "site" / "extras_of_run-1.0.dist-info").mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: extras_of_run\nVersion: 1.0\n")
    (folder / "bin").mkdir()
    (tool := folder / "bin" / "tool-of-run").write_text("#!/bin/sh\necho 1\n")
    tool.chmod(0o755)
    (folder / "out" / "part-1.json").write_text("{}")
    variables = {"LIBRARY_OF_RUN": "libm.so.6", "HOST_OF_RUN": "localhost"}
    with _inside(folder, variables, [str(folder / "site")], str(folder / "bin")):
        error, _, _ = _run(folder, value=0.5, release="1.0", python=(3, 99))
    return error


def mutated(world: World, folder: Path) -> RankRecord | None:
    """The record of the rank that runs it where the world lacks it; None where the program does without."""
    record = rehearsed_lacking(folder, {"declared-of-run": "2.0"} if world.lacks == "package" else {})
    if record is None:
        return None
    judge(record, folder)
    return record.ranks[0]


def judge(record: RehearsalRecord, folder: Path) -> None:
    """Give the rank its certificate, as after a rehearsal in that folder."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        apply_limits(record, ProjectWorld.from_files(folder, folder))
    finally:
        os.chdir(before)


def rehearsed_lacking(folder: Path, imported: dict[str, str]) -> RehearsalRecord | None:
    """What is taken down of ``train.py`` in a world that lacks everything; None where it runs to its end."""
    variables = {"LIBRARY_OF_RUN": "libnowhere-of-run.so", "HOST_OF_RUN": "nowhere-of-run.invalid"}
    with _inside(folder, variables, [], ""):
        error, asked, assumptions = _run(folder, value=16.0, release="2.0", python=sys.version_info[:2])
        if error is None:
            return None
        handed = [path for one in exception_chain(error) for path in missing_paths(one)]
        absent = [
            one for link in exception_chain(error) for one in asked_in_vain.lookups_before_failure(asked, link, handed)
        ]
    rank = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="raised", versions={"python": "3.11.0"})
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    rank.failure = Failure(name, str(error), frames_of_traceback(error.__traceback__), "load", 0)
    rank.absent = absent
    what = "a number computed from unknown values is 16 in one step, 1/16 in the next"
    rank.assumptions = [Assumption(what, where, kind="number") for where in assumptions]
    rank.imported = imported
    rank.confinement = "namespaces"
    facts = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0)
    return RehearsalRecord(["python", "train.py"], str(folder), 2, 1, 2, facts, 2, None, ranks=[rank])


def by_words_alone(folder: Path) -> bool:
    """Whether the failure would be certain if nothing but its words and frames were known."""
    record = rehearsed_lacking(folder, {})
    assert record is not None
    (rank,) = record.ranks
    rank.absent, rank.assumptions, rank.versions = [], [], {}
    (folder / "pyproject.toml").unlink()
    judge(record, folder)
    return is_certain(rank)


def is_certain(rank: RankRecord) -> bool:
    """Whether the failure would be told as a certain NO-GO."""
    return rank.outcome == "raised" and all(one.met for one in rank.certificate if one.needed)


def _array() -> bytes:
    import numpy as np

    stream = io.BytesIO()
    np.save(stream, np.array([5, 6]))
    return stream.getvalue()


def _database(path: Path) -> None:
    import sqlite3

    with sqlite3.connect(path) as connection:
        connection.execute("create table rows (n int)")
        connection.execute("insert into rows values (3)")
    connection.close()


@contextlib.contextmanager
def _inside(folder: Path, variables: dict[str, str], site: list[str], programs: str) -> Iterator[None]:
    before, path, environ = os.getcwd(), list(sys.path), dict(os.environ)
    os.chdir(folder)
    sys.path[:0] = [str(folder), *site]
    os.environ.update(variables)
    os.environ["PATH"] = os.pathsep.join(part for part in (programs, environ.get("PATH", "")) if part)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environ)
        for name in ("extras_of_run", "loader_of_run"):
            sys.modules.pop(name, None)
        importlib_forget(folder)


def importlib_forget(folder: Path) -> None:
    """Forget what the importer has listed of a folder."""
    for known in [one for one in sys.path_importer_cache if one.startswith(str(folder))]:
        sys.path_importer_cache.pop(known, None)


def _run(
    folder: Path, *, value: float, release: str, python: tuple[int, ...]
) -> tuple[BaseException | None, asked_in_vain.FailedLookups, list[str]]:
    program = str(folder / "train.py")
    assumptions: list[str] = []

    def unknown() -> float:
        assumptions.append(f"{program}:{sys._getframe(1).f_lineno}")
        return value

    asked = asked_in_vain.FailedLookups()
    undo = [asked_in_vain.install(asked), probe_reporting.install(), network.install().undo]
    main: Any = types.ModuleType("__main__")
    main.__dict__.update(__file__=program, unknown=unknown, RELEASE=release, PYTHON=python)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(Path(program).read_text(), program, "exec"), main.__dict__)
    except BaseException as error:
        return error, asked, assumptions
    finally:
        while undo:
            undo.pop()()
    return None, asked, assumptions
