"""Cases of the fuzzer: the project's own sample inputs, damaged. A case is its seed's and its number's alone."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
_MAX_SAMPLE = 200_000
_MAX_CASE = 300_000
"""Bytes of a damaged file: most cases are small, so that many of them are run; ``tests/fuzz/test_costs.py`` has files
of megabytes."""

_GROWN_BYTES = 180_000
_GROWN_BY_LINE = (".py", ".sh", ".log", ".sbatch")
_GROWN = (*_GROWN_BY_LINE, ".json", ".yaml", ".yml", ".txt", ".toml", ".ipynb")

_LAUNCHES = (".sh", ".bash", ".sbatch", ".slurm")
_TOKENS = (
    *(
        b"\0",
        b"\xff",
        b"\xfe\xff",
        b"\xef\xbb\xbf",
        b"\r",
        b"\n",
        b"\r\n",
        b"\t",
        b"\x1b[31m",
        b"\xe2\x80\xae",
        b"\xc0",
    ),
    *(
        b'"',
        b"'",
        b"`",
        b"$",
        b"${",
        b"$(",
        b"$((",
        b"))",
        b"}",
        b"{",
        b"[",
        b"]",
        b"(",
        b")",
        b"<<EOF\n",
        b"\\",
        b"\\\n",
    ),
    *(
        b"- ",
        b": ",
        b"? ",
        b"&a ",
        b"*a",
        b"<<: *a",
        b"---\n",
        b"{{",
        b"}}",
        b"{%",
        b"!!python/object:os.system ",
        b"#",
    ),
    *(
        b"null",
        b"true",
        b"NaN",
        b"Infinity",
        b"-1",
        b"0",
        b"1e999",
        b"9" * 400,
        b"9" * 5000,
        b"-0.0",
        b"0x1f",
        b"1_000",
    ),
    *(b"auto", b'"auto"', b"[]", b"{}", b'""', b'{"a": 1}', b"stage", b"%s", b"{name}", b"{0}", b"%(x)s", b"$HOME"),
    *(
        b"--",
        b"--x",
        b"--nproc_per_node",
        b"=",
        b"==",
        b">=1,<0",
        b"~=",
        b"@ git+https://x/y",
        b"; extra == 'x'",
        b"-r x",
    ),
    *(
        b"import ",
        b"def f():\n",
        b"lambda:",
        b"if True:\n",
        b"    ",
        b"async ",
        b"match x:\n",
        b"f'{",
        b'"""',
        b"import *",
    ),
    *(
        b"Traceback (most recent call last):\n",
        b'  File "a.py", line 1, in f\n',
        b"RuntimeError: ",
        b"[rank0]: ",
        b"%|",
    ),
    *(
        b"deepspeed",
        b"torchrun ",
        b"accelerate launch ",
        b"zero_optimization",
        b"kind: ",
        b"apiVersion: v1\n",
        b"FROM ",
    ),
)
_NESTED = (
    (b"(", b")"), (b"[", b"]"), (b"{", b"}"), (b"$((", b"))"), (b"$(", b")"), (b"${a:-", b"}"), (b'{"a":', b"}"),
    (b"if true; then ", b" fi;"), (b"- ", b""), (b"a: {", b"}"), (b"f(", b")"), (b"not ", b""), (b"x[", b"]"),
    (b"! ", b""), (b"a|", b""), (b"a.", b""), (b"-", b""), (b"lambda: ", b""),
    (b"bash -c '", b"'"), (b"<<", b""), (b'"', b'"'),
)  # fmt: skip
_ENCODINGS = ("utf-16", "utf-16-le", "utf-32", "gbk", "gb18030", "latin-1", "utf-7", "cp037", "utf-8-sig", "shift-jis")
_WORDS = ("训练", "模型路径", "数据集/微调", "é", "\u202e", "Ω" * 50, "🙂")
_NAMES = (
    "launch.sh", "train.py", "ds_config.json", "config.yaml", "requirements.txt", "pyproject.toml", "uv.lock",
    "poetry.lock", "Pipfile.lock", "environment.yml", "Dockerfile", "notebook.ipynb", "job.sbatch",
    "hostfile", "train.log",
    "nccl_trace_rank_0", "environment.json", "config.json", "训练.sh", "a b.sh", "-x.sh", "{x}.json",
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """Files that belong together, by their paths: a small project, or one log with what stood beside it."""

    name: str
    files: tuple[tuple[str, Path], ...]
    is_log: bool = False


@dataclass(frozen=True)
class Case:
    """What is written to a folder, and how it is looked at: the files of a command line, or a log and its options."""

    number: int
    files: dict[bytes, bytes]
    how: str
    main: str
    said: tuple[str, ...]
    """The sample and the damage, for whoever reads of a failure."""
    grown: bool = False

    def write(self, folder: Path) -> None:
        """Lay its files into the folder."""
        for name, data in self.files.items():
            path = os.path.join(os.fsencode(folder), name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)


class Fuzzer:
    """Makes cases of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    @cached_property
    def samples(self) -> list[Sample]:
        """All sample inputs of the project."""
        return [*_projects(), *_logs(), *_dumps()]

    def case(self, number: int) -> Case:
        """The case of that number, the same each time."""
        chance = random.Random(f"{self.seed}-{number}")
        sample = chance.choice(self.samples)
        files = {name.encode(): path.read_bytes() for name, path in sample.files}
        names = list(files)
        main = names[0] if sample.is_log else chance.choice(names)
        said = [sample.name]
        for name in dict.fromkeys((main, chance.choice(names))):
            data = files[name]
            for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
                what, data = self._damaged(chance, data)
                said.append(f"{name.decode()}: {what}")
            files[name] = data[:_MAX_CASE]
        if chance.random() < 0.1:
            renamed = chance.choice(_NAMES)
            encoded = renamed.encode("gbk", "ignore") if chance.random() < 0.3 else renamed.encode()
            files[encoded] = files.pop(main)
            main = encoded
            said.append(f"named {encoded!r}")
        return Case(number, files, self._how(chance, sample, main), os.fsdecode(main), tuple(said))

    @cached_property
    def files_to_grow(self) -> list[tuple[Sample, str, str]]:
        """Each text file of the samples with each way to make it large, in the seed's order; the same text once."""
        known: set[tuple[str, bytes]] = set()
        found = []
        for sample in self.samples:
            for name, path in sample.files:
                suffix = path.suffix
                if suffix not in _GROWN or (suffix, path.read_bytes()) in known:
                    continue
                known.add((suffix, path.read_bytes()))
                ways = ("whole", "line", "block", "nest", "lengthen") if suffix in _GROWN_BY_LINE else ("whole",)
                found += [(sample, name, way) for way in ways]
        random.Random(self.seed).shuffle(found)
        return found

    def grown(self, number: int) -> Case:
        """The case of that number with one file made large out of its own text."""
        sample, name, way = self.files_to_grow[number % len(self.files_to_grow)]
        chance = random.Random(f"grown {self.seed}-{number}")
        files = {name.encode(): path.read_bytes() for name, path in sample.files}
        files[name.encode()] = _grown(chance, way, files[name.encode()])[:_MAX_CASE]
        how = "diagnose" if sample.is_log else "file" if Path(name).suffix in _GROWN_BY_LINE else "folder"
        main = sample.files[0][0] if sample.is_log else name
        return Case(number, files, how, main, (sample.name, f"{name}: {way}"), grown=True)

    def _how(self, chance: random.Random, sample: Sample, main: bytes) -> str:
        ways = ["folder", "folder", "folder", "file", "environment"]
        if main.endswith(tuple(suffix.encode() for suffix in _LAUNCHES)):
            ways += ["bash"] * 3
        ways += ["diagnose"] * (12 if sample.is_log else 1)
        return chance.choice(ways)

    def _damaged(self, chance: random.Random, data: bytes) -> tuple[str, bytes]:
        ways = (_flip, _cut, _repeat, _insert, _remove, _nest, _encode, _enlarge, _lengthen, _shuffle, _translate)
        kind = chance.randrange(len(ways) + 1)
        if kind == len(ways):
            other = chance.choice(self.samples)
            name, path = chance.choice(other.files)
            return f"swapped for {other.name}/{name}", path.read_bytes()
        return ways[kind].__name__.strip("_"), ways[kind](chance, data)


def _projects() -> Iterator[Sample]:
    folders = [path for path in sorted((TESTS / "hazards").glob("*/*_*")) if path.is_dir()]
    folders += [path for path in sorted((TESTS / "healthy").iterdir()) if path.is_dir()]
    folders += [path for path in sorted((TESTS.parent / "examples").iterdir()) if path.is_dir()]
    for folder in folders:
        files = tuple(
            (str(path.relative_to(folder)), path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.stat().st_size < _MAX_SAMPLE and "__pycache__" not in path.parts
        )
        if files:
            yield Sample(str(folder.relative_to(TESTS.parent)), files[:40])


def _logs() -> Iterator[Sample]:
    for log in sorted((TESTS / "hazards").glob("*/*.log")):
        beside = [path for path in log.parent.glob(f"{log.stem}.*") if path != log]
        files = ((log.name, log), *((path.name, path) for path in sorted(beside)))
        yield Sample(str(log.relative_to(TESTS.parent)), files, is_log=True)


def _dumps() -> Iterator[Sample]:
    folder = TESTS / "evidence" / "dumps"
    ranks = tuple((path.name, path) for path in sorted((folder / "three_ranks").iterdir()))
    for _ in range(40):  # as likely to be chosen as a kind of hazard
        yield Sample("flight recorder", ranks, is_log=True)
        yield Sample("py-spy", (("stacks.txt", folder / "py_spy_of_two_ranks.txt"),), is_log=True)


def _place(chance: random.Random, data: bytes) -> tuple[int, int]:
    start = chance.randint(0, len(data))
    return start, min(len(data), start + chance.choice((0, 1, 4, 30, 300)))


def _flip(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 3, 20))):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(chance: random.Random, data: bytes) -> bytes:
    at = chance.randint(0, len(data))
    return data[:at] if chance.random() < 0.7 else data[at:]


def _repeat(chance: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True) or [b"x\n"]
    start = chance.randrange(len(lines))
    block = b"".join(lines[start : start + chance.choice((1, 1, 5, len(lines)))])
    times = min(chance.choice((2, 10, 300, 5000)), 1 + 200_000 // max(len(block), 1))
    return b"".join([*lines[:start], block * times, *lines[start:]])


def _insert(chance: random.Random, data: bytes) -> bytes:
    for _ in range(chance.choice((1, 2, 8))):
        start, end = _place(chance, data)
        token = chance.choice(_TOKENS) * chance.choice((1, 1, 1, 2, 500))
        data = data[:start] + token + data[end:]
    return data


def _remove(chance: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(line for line in lines if chance.random() < 0.8)


def _nest(chance: random.Random, data: bytes) -> bytes:
    before, after = chance.choice(_NESTED)
    depth = chance.choice((3, 30, 200, 3000, 30_000))
    start, end = _place(chance, data)
    inside = data[start:end].replace(b"\n", b" ") or b"x"
    return data[:start] + before * depth + inside + after * depth + data[end:]


def _encode(chance: random.Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    if chance.random() < 0.5:
        at = chance.randint(0, len(text))
        text = text[:at] + chance.choice(_WORDS) + text[at:]
    return text.encode(chance.choice(_ENCODINGS), "ignore")


def _enlarge(chance: random.Random, data: bytes) -> bytes:
    """Another number in the place of one."""
    places = [at for at, byte in enumerate(data) if 48 <= byte < 58]
    if not places:
        return data
    start = chance.choice(places)
    end = start
    while end < len(data) and 48 <= data[end] < 58:
        end += 1
    number = chance.choice(
        (b"0", b"-1", b"1e30", b"9" * 20, b"9" * 5000, b"1.5", b"NaN", b"18446744073709551616", b'"8"', b"1e999", b"")
    )
    return data[:start] + number + data[end:]


def _lengthen(chance: random.Random, data: bytes) -> bytes:
    """One line of all, or of one word many times."""
    if chance.random() < 0.4:
        return data.replace(b"\n", chance.choice((b" ", b"", b"; ", b"\\n")))
    start, end = _place(chance, data)
    word = data[start:end] or b"a"
    return data[:start] + word * (chance.choice((1000, 30_000, 100_000)) // len(word)) + data[end:]


def _grown(chance: random.Random, way: str, data: bytes) -> bytes:
    if way == "nest":
        return _nest(chance, data)
    if way == "lengthen":
        return _lengthen(chance, data)
    lines = data.splitlines(keepends=True) or [b"x\n"]
    count = {"whole": len(lines), "line": 1, "block": 5}[way]
    start = chance.randrange(len(lines)) if count < len(lines) else 0
    block = b"".join(lines[start : start + count])
    return b"".join([*lines[:start], block * max(1, _GROWN_BYTES // len(block)), *lines[start + count :]])


def _shuffle(chance: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def _translate(chance: random.Random, data: bytes) -> bytes:
    """A word of the file's own in another place."""
    words = data.split()
    if len(words) < 2:
        return data + data
    old, new = chance.choice(words), chance.choice(words)
    return data.replace(old, new, chance.choice((1, -1)))


def laid(case: Case, folder: Path) -> None:
    """The folder with a case's files and no others."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    case.write(folder)
