"""A program that writes in every way it can: the folder stays as it was, and the program reads what it wrote."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from confined import runs_of

from gonogo.confinement.world import World

IN_A_WORKER = """
import sys
sys.path.insert(0, {src!r})
from gonogo.virtual.lookups import probe_reporting
from gonogo.virtual.sandbox import file_copies
undo = [file_copies.install(), probe_reporting.install()]
"""
"""What a worker puts in place of the functions that work with files."""


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Names, kinds, modes, mtimes and contents of all that lies in a folder."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (stat.S_IFMT(state.st_mode), state.st_mode, state.st_mtime_ns, content)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with files, folders and links in it."""
    root = tmp_path / "user"
    (root / "data" / "deep").mkdir(parents=True)
    (root / "data" / "train.jsonl").write_text('{"a": 1}\n')
    (root / "data" / "deep" / "x.bin").write_bytes(bytes(range(256)))
    (root / "old").mkdir()
    (root / "old" / "checkpoint").mkdir()
    (root / "old" / "checkpoint" / "weights.bin").write_bytes(b"w" * 5000)
    (root / "log.txt").write_text("first\n")
    (root / "link").symlink_to("data")
    (root / "file_link").symlink_to("data/train.jsonl")
    os.utime(root / "log.txt", ns=(10**18, 10**18))
    return root


def run(folder: Path, program: str, *arguments: str, world: World | None = None) -> subprocess.CompletedProcess[str]:
    code = IN_A_WORKER.format(src=str(Path(__file__).parents[2] / "src")) + textwrap.dedent(program)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command if world is None else world.command(command),
        env=None if world is None else world.environment(os.environ),
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def check(folder: Path, program: str) -> None:
    """Run the program in a world; it must succeed and leave the folder as it was."""
    before = snapshot(folder)
    world = runs_of(folder).world
    if not world.has_overlay:
        pytest.skip("this kernel allows no user namespaces")
    done = run(folder, program, world=world)
    assert done.returncode == 0, done.stderr
    assert snapshot(folder) == before


def test_every_way_to_write(folder: Path) -> None:
    check(
        folder,
        """
        import os, io, shutil, pathlib, tempfile, glob, json, pickle, gzip, zipfile, tarfile, numpy, fcntl, logging
        from pathlib import Path
        open("new.txt", "w").write("new")
        assert open("new.txt").read() == "new" and os.path.getsize("new.txt") == 3
        with open("log.txt", "a") as f:
            f.write("second\\n")
            assert f.name == "log.txt"
        assert Path("log.txt").read_text() == "first\\nsecond\\n"
        with open("data/train.jsonl", "r+") as f:
            f.seek(2); f.write("Z")
        assert open("link/train.jsonl").read() == '{"Z": 1}\\n', "a link's other name is the same file"
        assert open("file_link").read() == '{"Z": 1}\\n'
        open("file_link", "w").write("through the link")
        assert open("data/train.jsonl").read() == "through the link" and os.path.islink("file_link")
        fd = os.open("raw.bin", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o640); os.write(fd, b"abc"); os.close(fd)
        assert os.stat("raw.bin").st_mode & 0o777 == 0o640
        try:
            os.open("log.txt", os.O_CREAT | os.O_EXCL | os.O_WRONLY); raise SystemExit("O_EXCL opened")
        except FileExistsError as error:
            assert error.filename == "log.txt"
        io.FileIO("fileio.bin", "w").write(b"1234"); assert Path("fileio.bin").stat().st_size == 4
        os.makedirs("a/b/c"); os.makedirs("a/b/c", exist_ok=True); (Path("a") / "b" / "t").touch()
        assert sorted(os.listdir("a/b")) == ["c", "t"]
        assert [(d, f) for d, _, f in os.walk("a") if f] == [("a/b", ["t"])]
        os.rename("old/checkpoint", "old/moved")
        assert not os.path.exists("old/checkpoint") and Path("old/moved/weights.bin").read_bytes() == b"w" * 5000
        os.mkdir("old/checkpoint"); assert os.listdir("old/checkpoint") == []
        os.replace("new.txt", "log.txt"); assert open("log.txt").read() == "new" and not os.path.exists("new.txt")
        os.remove("data/deep/x.bin"); assert "x.bin" not in os.listdir("data/deep")
        os.rmdir("data/deep"); assert not os.path.isdir("data/deep") and sorted(os.listdir("data")) == ["train.jsonl"]
        os.makedirs("data/deep"); assert os.listdir("data/deep") == []
        try:
            os.rmdir("data"); raise SystemExit("removed a full folder")
        except OSError as error:
            assert error.errno == 39 and error.filename == "data"
        shutil.copytree("data", "copied"); shutil.copy2("data/train.jsonl", "copied/2"); shutil.move("copied", "moved")
        assert sorted(os.listdir("moved")) == ["2", "deep", "train.jsonl"]
        shutil.rmtree("old"); assert not os.path.exists("old/moved") and "old" not in os.listdir()
        os.chmod("data/train.jsonl", 0o600); assert os.stat("link/train.jsonl").st_mode & 0o777 == 0o600
        os.utime("data", (1, 1)); assert os.stat("data").st_mtime == 1
        os.utime("data/train.jsonl", ns=(5, 7)); assert os.stat("data/train.jsonl").st_mtime_ns == 7
        with open("data/train.jsonl") as f:
            os.utime(f.fileno()); os.fchmod(f.fileno(), 0o644)
        os.truncate("data/train.jsonl", 3); assert open("data/train.jsonl").read() == "thr"
        os.symlink("data", "second_link"); assert open("second_link/train.jsonl").read() == "thr"
        assert os.path.realpath("second_link/train.jsonl") == os.path.abspath("data/train.jsonl")
        os.link("data/train.jsonl", "hard"); open("hard", "a").write("!")
        assert open("data/train.jsonl").read() == "thr!"
        os.unlink("link"); assert not os.path.lexists("link") and os.path.exists("data")
        json.dump({"a": 1}, open("x.json", "w")); pickle.dump([1], open("x.pkl", "wb"))
        gzip.open("x.gz", "wb").write(b"z"); assert gzip.open("x.gz").read() == b"z"
        with zipfile.ZipFile("x.zip", "w") as z:
            z.writestr("in", "side")
        assert zipfile.ZipFile("x.zip").read("in") == b"side"
        with tarfile.open("x.tar", "w") as t:
            t.add("x.json")
        assert tarfile.open("x.tar").getnames() == ["x.json"]
        numpy.save("x.npy", numpy.arange(4)); assert numpy.load("x.npy").sum() == 6
        numpy.arange(3.0).tofile("x.raw"); assert numpy.fromfile("x.raw").tolist() == [0, 1, 2]
        m = numpy.memmap("x.map", mode="w+", shape=(8,), dtype="u1"); m[:] = 3; m.flush()
        assert numpy.memmap("x.map", mode="r", dtype="u1").sum() == 24
        with open("x.lock", "w") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
        logging.basicConfig(filename="run.log"); logging.error("said"); assert "said" in open("run.log").read()
        assert sorted(glob.glob("x.*")) == sorted(str(p) for p in Path(".").glob("x.*")) and len(glob.glob("x.*")) == 9
        assert {e.name for e in os.scandir("data")} == {"train.jsonl", "deep"}
        entry = next(e for e in os.scandir(".") if e.name == "file_link")
        assert (entry.is_dir(), entry.is_file(), entry.is_symlink()) == (False, True, True)
        with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as f:
            f.write("t")
        os.replace(f.name, "published"); assert open("published").read() == "t"
        """,
    )


def test_compiled_writers(folder: Path) -> None:
    check(
        folder,
        """
        import os, json, sqlite3
        from tokenizers import Tokenizer, models
        tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
        tokenizer.save("tokenizer.json"); assert os.path.exists("tokenizer.json")
        assert Tokenizer.from_file("tokenizer.json").get_vocab_size() == 2
        os.mkdir("vocab"); tokenizer.model.save("vocab"); assert os.listdir("vocab") == ["vocab.json"]
        assert models.WordLevel.read_file("vocab/vocab.json") == {"a": 0, "b": 1}
        import pyarrow as pa, pyarrow.parquet as pq, pyarrow.feather as feather
        table = pa.table({"x": [1, 2]})
        pq.write_table(table, "t.parquet"); assert pq.read_table("t.parquet") == table
        assert pq.ParquetFile("t.parquet").metadata.num_rows == 2
        with pa.OSFile("t.arrow", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        with pa.memory_map("t.arrow") as source:
            assert pa.ipc.open_file(source).read_all() == table
        feather.write_feather(table, "t.feather"); assert feather.read_table("t.feather") == table
        connection = sqlite3.connect("t.db"); connection.execute("create table t(x)"); connection.commit()
        assert os.path.getsize("t.db") > 0
        import torch
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "m.pt")
        assert torch.jit.load("m.pt")(torch.zeros(1, 2)).shape == (1, 2)
        """,
    )


def test_datasets_caches_and_saves(folder: Path) -> None:
    check(
        folder,
        """
        import os
        os.environ["HF_HOME"] = os.path.abspath("hf")
        from datasets import Dataset, load_dataset, load_from_disk
        data = load_dataset("json", data_files="data/train.jsonl", split="train")
        assert data[0] == {"a": 1} and os.path.isdir("hf")
        doubled = data.map(lambda row: {"b": row["a"] * 2}, num_proc=None)
        doubled.save_to_disk("saved"); assert load_from_disk("saved")[0] == {"a": 1, "b": 2}
        doubled.to_parquet("d.parquet"); assert Dataset.from_parquet("d.parquet")[0]["b"] == 2
        doubled.to_json("d.json"); assert "2" in open("d.json").read()
        """,
    )


def test_forked_children_and_other_programs_see_the_same(folder: Path) -> None:
    check(
        folder,
        """
        import os, subprocess
        from multiprocessing import get_context
        def work(i):
            open(f"part{i}", "w").write(str(i)); os.remove("log.txt") if i == 0 else None
            return os.path.exists("data")
        with get_context("fork").Pool(2) as pool:
            assert all(pool.map(work, range(3)))
        assert open("part2").read() == "2" and not os.path.exists("log.txt") and "log.txt" not in os.listdir()
        subprocess.run(["sh", "-c", "rm -r data; mv old new; echo x > part2"], check=True)
        assert sorted(os.listdir()) == ["file_link", "link", "new", "part0", "part1", "part2"]
        os.makedirs("out/run"); os.chdir("out/run")
        assert subprocess.run(["pwd"], capture_output=True, text=True).stdout.strip() == os.getcwd()
        """,
    )


def test_undo_leaves_python_as_it_was() -> None:
    done = run(
        Path.cwd(),
        """
        from importlib import _bootstrap_external
        import importlib.metadata, os, posix, shutil
        assert os.stat is not posix.stat and os.rename in os.supports_dir_fd and os.stat in os.supports_fd
        while undo: undo.pop()()
        assert all(getattr(os, name) is getattr(posix, name) for name in ("stat", "lstat", "access", "rename"))
        assert os.stat in os.supports_follow_symlinks and _bootstrap_external._os is posix
        assert importlib.metadata.os is os and shutil.copyfile.__module__ == "shutil"
        assert not hasattr(shutil.copyfile, "__wrapped__")
        """,
    )
    assert done.returncode == 0, done.stderr


RANDOM_CALLS = """
import json, os, random, shutil, sys
rng = random.Random(int(sys.argv[1]))
names = ["a", "b", "data", "old", "link", "log.txt", "deep", "checkpoint"]
said = []
def path():
    said.append("/".join(rng.choice(names) for _ in range(rng.choice([1, 1, 2, 2, 3]))))
    return said[-1]
def write(p, mode):
    with open(p, mode) as f:
        f.write(rng.choice(["x", "longer text"]))
def read(p):
    with open(p, "rb") as f:
        return len(f.read())
def listed(p):
    return sorted(e.name for e in os.scandir(p)), sorted(os.listdir(p))
calls = [
    lambda: write(path(), "w"), lambda: write(path(), "a"), lambda: write(path(), "x"), lambda: write(path(), "r+"),
    lambda: read(path()), lambda: read(path()), lambda: listed(path()), lambda: os.mkdir(path()),
    lambda: os.makedirs(path(), exist_ok=True), lambda: os.rename(path(), path()), lambda: os.replace(path(), path()),
    lambda: os.remove(path()), lambda: os.rmdir(path()), lambda: shutil.rmtree(path()),
    lambda: os.symlink(rng.choice(["data", "../old", "nowhere", "a"]), path()), lambda: os.readlink(path()),
    lambda: os.link(path(), path(), follow_symlinks=False),
    lambda: os.path.isdir(path()), lambda: os.path.lexists(path()),
    lambda: os.path.getsize(path()) if not os.path.isdir(path()) else 0,
    lambda: os.path.realpath(path())[len(os.getcwd()):],
    lambda: os.chmod(path(), 0o640), lambda: os.truncate(path(), 2), lambda: os.utime(path(), (5, 7)),
    lambda: (shutil.copytree(path(), path(), symlinks=True), None)[1], lambda: os.stat(path()).st_mode,
]
for step in range(400):
    number = rng.randrange(len(calls))
    call = calls[number]
    said.clear()
    try:
        result = call()
    except OSError as error:
        result = ["error", error.errno]
        if number in (9, 10, 13, 24):
            result = ["error", "whichever of several is met first"]
    except shutil.Error:
        result = ["error", "copying"]
    print(json.dumps([number, said, result]))
for folder, folders, files in sorted(os.walk(".")):
    print(folder, sorted(folders), sorted((f, read(os.path.join(folder, f)) if os.path.exists(os.path.join(folder, f))
          else None) for f in files))
"""


@pytest.mark.parametrize("seed", range(4))
def test_any_calls_give_what_the_real_ones_give(folder: Path, seed: int) -> None:
    """400 random calls in a world and on a copy of the folder: the same answers, errors and tree."""
    import shutil

    copy = folder.parent / "real" / "user"  # apart: some links lead out of the folder
    shutil.copytree(folder, copy, symlinks=True)
    before = snapshot(folder)
    real = subprocess.run(
        [sys.executable, "-c", RANDOM_CALLS, str(seed)], cwd=copy, capture_output=True, text=True, timeout=300,
        check=True,
    ).stdout.splitlines()  # fmt: skip
    confined = run(folder, RANDOM_CALLS, str(seed), world=runs_of(folder).world)
    assert confined.returncode == 0, confined.stderr
    assert snapshot(folder) == before
    for one, other in zip(confined.stdout.splitlines(), real, strict=True):
        assert one == other
