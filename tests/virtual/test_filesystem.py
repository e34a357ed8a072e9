"""A program that writes in every way it can: the folder stays as it was, and the program reads what it wrote."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PRELUDE = """
import sys
sys.path.insert(0, {src!r})
from gonogo.virtual.sandbox.overlay import Overlay
from gonogo.virtual.sandbox.filesystem import install
overlay = Overlay({scratch!r}, limit_bytes={limit})
patches = install(overlay)
"""


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


def run(folder: Path, program: str, limit: int = 1 << 30, **kwargs: object) -> subprocess.CompletedProcess[str]:
    src = str(Path(__file__).parents[2] / "src")
    scratch = folder.parent / "scratch"
    code = PRELUDE.format(src=src, scratch=str(scratch), limit=limit) + textwrap.dedent(program)
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120, check=False, **kwargs
    )  # type: ignore[call-overload,no-any-return]


def check(folder: Path, program: str) -> str:
    """Run the program; it must succeed and leave the folder as it was. Returns what it printed."""
    before = snapshot(folder)
    done = run(folder, program)
    assert done.returncode == 0, done.stderr
    assert snapshot(folder) == before
    return done.stdout


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
        with tempfile.TemporaryDirectory() as where:
            assert where.startswith(overlay.scratch); Path(where, "t").write_text("t")
        with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as f:
            f.write("t")
        os.replace(f.name, "published"); assert open("published").read() == "t"
        """,
    )


def test_paths_that_must_fail_fail_as_they_would(folder: Path) -> None:
    check(
        folder,
        """
        import os
        from pathlib import Path
        def fails(kind, call, *args, **kwargs):
            try:
                call(*args, **kwargs)
            except kind as error:
                assert error.filename == args[0], (error.filename, args[0])
                return
            raise SystemExit(f"{call} {args} did not raise {kind}")
        open("touched", "w").close()
        for _ in range(2):
            fails(FileNotFoundError, open, "nowhere/x", "w")
            fails(FileNotFoundError, open, "nothing")
            fails(FileNotFoundError, os.stat, "nothing")
            fails(FileNotFoundError, os.listdir, "nothing")
            fails(FileNotFoundError, os.remove, "nothing")
            fails(FileNotFoundError, os.rename, "nothing", "other")
            fails(FileExistsError, os.mkdir, "data")
            fails(FileExistsError, open, "log.txt", "x")
            fails(IsADirectoryError, open, "data", "w")
            fails(NotADirectoryError, os.listdir, "log.txt")
            fails(NotADirectoryError, os.rmdir, "log.txt")
            fails(IsADirectoryError, os.remove, "data")
            fails(OSError, os.rename, "old", "data")
            os.makedirs("data/deep/more", exist_ok=True)
        """,
    )


def test_working_directory_that_exists_in_scratch_only(folder: Path) -> None:
    out = check(
        folder,
        """
        import os, subprocess, sys
        os.makedirs("out/run"); home = os.getcwd(); os.chdir("out/run")
        assert os.getcwd() == home + "/out/run", os.getcwd()
        open("r.txt", "w").write("r"); assert open(home + "/out/run/r.txt").read() == "r"
        assert os.path.abspath("r.txt") == home + "/out/run/r.txt"
        assert open("../../log.txt").read() == "first\\n" and sorted(os.listdir()) == ["r.txt"]
        subprocess.run([sys.executable, "-c", "import os; print('child sees', os.listdir())"], check=True)
        os.chdir("../.."); assert os.getcwd() == home and os.path.isfile("out/run/r.txt")
        subprocess.run([sys.executable, "-c", "import os; print('there', os.listdir())"], check=True, cwd="out/run")
        """,
    )
    assert "child sees ['r.txt']" in out
    assert "there ['r.txt']" in out


def test_forked_children_share_the_view(folder: Path) -> None:
    check(
        folder,
        """
        import os
        from multiprocessing import get_context
        def work(i):
            open(f"part{i}", "w").write(str(i)); os.remove("log.txt") if i == 0 else None
            return os.path.exists("data")
        with get_context("fork").Pool(2) as pool:
            assert all(pool.map(work, range(3)))
        assert open("part2").read() == "2" and not os.path.exists("log.txt") and "log.txt" not in os.listdir()
        """,
    )


def test_folder_file_descriptors(folder: Path) -> None:
    check(
        folder,
        """
        import os
        open("data/made", "w").write("made"); os.remove("data/train.jsonl")
        fd = os.open("data", os.O_RDONLY)
        assert sorted(os.listdir(fd)) == ["deep", "made"]
        assert os.stat("made", dir_fd=fd).st_size == 4
        os.unlink("made", dir_fd=fd); os.mkdir("sub", dir_fd=fd)
        assert sorted(e.name for e in os.scandir(fd)) == ["deep", "sub"]
        assert [(d, sorted(s)) for d, s, *_ in os.fwalk("data")][0] == ("data", ["deep", "sub"])
        """,
    )


def test_written_modules_are_imported_and_no_byte_code_is_left(folder: Path) -> None:
    (folder / "helper.py").write_text("VALUE = 1\n")
    check(
        folder,
        """
        import sys, os, runpy
        sys.path.insert(0, "")
        import helper; assert helper.VALUE == 1
        os.makedirs("package"); open("package/__init__.py", "w").write("from .inner import *")
        open("package/inner.py", "w").write("ANSWER = 42")
        import package; assert package.ANSWER == 42 and package.__file__ == os.path.abspath("package/__init__.py")
        assert runpy.run_path("package/inner.py")["ANSWER"] == 42
        """,
    )


def test_native_writers_are_mapped(folder: Path) -> None:
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


def test_datasets_caches_and_saves_in_scratch(folder: Path) -> None:
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


def test_undo_leaves_python_as_it_was(folder: Path) -> None:
    check(
        folder,
        """
        patches.undo()
        import builtins, io, os, posix, shutil, pathlib, tempfile, subprocess
        assert builtins.open is io.open and type(builtins.open).__name__ == "builtin_function_or_method"
        assert os.stat is posix.stat and os.open is posix.open and os.listdir is posix.listdir
        assert io.FileIO.__init__.__qualname__ == "FileIO.__init__" and io.FileIO.__module__ == "_io"
        assert type(io.FileIO) is type and shutil._use_fd_functions and "TMPDIR" not in os.environ
        """,
    )


def test_too_much_written_is_said_clearly(folder: Path) -> None:
    before = snapshot(folder)
    done = run(
        folder,
        """
        import time
        for i in range(40):
            open(f"big{i}", "wb").write(b"x" * (1 << 20)); time.sleep(0.03)
        """,
        limit=4 << 20,
    )
    assert done.returncode == 1
    assert "wrote more than" in done.stderr.splitlines()[-1]
    assert snapshot(folder) == before


@pytest.mark.skipif(not hasattr(os, "unshare") and os.geteuid() != 0, reason="needs a small file system of its own")
def test_full_scratch_is_said_clearly(folder: Path) -> None:
    """Scratch on a file system of 48 MiB: what is met first, ours or the kernel's refusal, is explained."""
    src = str(Path(__file__).parents[2] / "src")
    program = textwrap.dedent(
        f"""
        import sys; sys.path.insert(0, {src!r})
        from gonogo.virtual.sandbox.overlay import Overlay
        from gonogo.virtual.sandbox.filesystem import install
        overlay = Overlay("/mnt/gonogo-test"); install(overlay)
        try:
            for i in range(100):
                with open(f"big{{i}}", "wb") as f:
                    f.write(b"x" * (8 << 20))
        except OSError as error:
            print(overlay.explain(error).en)
        """
    )
    script = 'mkdir -p /mnt/gonogo-test && mount -t tmpfs -o size=48m tmpfs /mnt/gonogo-test && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, sys.executable, program],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no private mount here: {done.stderr.strip()}")
    assert "is full" in done.stdout, done.stderr
    assert "TMPDIR" in done.stdout


def test_guard_refuses_what_the_overlay_does_not_see(folder: Path) -> None:
    before = snapshot(folder)
    done = run(
        folder,
        """
        import os, subprocess, json
        from gonogo.virtual.sandbox.write_guard import guard_writes
        if not guard_writes([overlay.scratch]):
            print("no guard"); raise SystemExit
        print(subprocess.run(["sh", "-c", "rm -rf data; echo x > log.txt; echo y > /dev/null && echo ran"],
              capture_output=True, text=True).stdout)
        open("seen", "w").write("fine"); assert open("seen").read() == "fine"
        os.rename("data", "renamed"); assert os.listdir("renamed")
        print(open("/dev/null").read(), "guarded")
        """,
    )
    assert done.returncode == 0, done.stderr
    if "no guard" in done.stdout:
        pytest.skip("this kernel has no Landlock")
    assert "ran" in done.stdout
    assert "guarded" in done.stdout
    assert snapshot(folder) == before


def test_explains_only_what_scratch_is_to_blame_for(tmp_path: Path) -> None:
    from gonogo.virtual.sandbox.overlay import Overlay

    overlay = Overlay(str(tmp_path / "scratch"))
    assert overlay.explain(FileNotFoundError(errno.ENOENT, "no")) is None
    full = overlay.explain(OSError(errno.ENOSPC, "full"))
    assert full is not None
    assert str(tmp_path / "scratch") in full.en
    assert json.dumps(full.zh)


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


@pytest.mark.parametrize("seed", range(16))
def test_any_calls_give_what_the_real_ones_give(folder: Path, seed: int) -> None:
    """400 random calls on the overlay and on a copy of the folder: the same answers, errors and tree."""
    import shutil

    copy = folder.parent / "real" / "user"  # apart: some links lead out of the folder
    shutil.copytree(folder, copy, symlinks=True)
    before = snapshot(folder)
    src = str(Path(__file__).parents[2] / "src")
    prelude = PRELUDE.format(src=src, scratch=str(folder.parent / "scratch"), limit=1 << 30)
    outputs = []
    for where, program in ((copy, RANDOM_CALLS), (folder, prelude + RANDOM_CALLS)):
        done = subprocess.run(
            [sys.executable, "-c", program, str(seed)],
            cwd=where,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        outputs.append(done.stdout.splitlines())
    assert snapshot(folder) == before
    for overlaid, real in zip(outputs[1], outputs[0], strict=False):
        assert overlaid == real
    assert len(outputs[1]) == len(outputs[0])
