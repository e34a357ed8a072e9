"""Moves that overlayfs refuses, and copies of files that are mostly holes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confined import runs_of

from gonogo.virtual.sandbox import file_copies


@pytest.fixture
def across(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every move from a folder named ``below`` is one between disks."""
    rename = os.rename

    def refused(original: Callable[..., None]) -> Callable[..., None]:
        def call(src: str, dst: str, **folders: int | None) -> None:
            if "below" in str(src):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), src, None, dst)
            rename(src, dst, **folders)

        return call

    monkeypatch.setattr(os, "rename", refused(os.rename))
    monkeypatch.setattr(os, "replace", refused(os.replace))
    undo = file_copies.install()
    yield
    undo()


@pytest.fixture
def below(tmp_path: Path) -> Path:
    """A folder with files of all kinds."""
    folder = tmp_path / "below"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "rows.txt").write_text("rows")
    os.link(folder / "deep" / "rows.txt", folder / "same.txt")
    (folder / "link").symlink_to("deep/rows.txt")
    os.mkfifo(folder / "pipe")
    with open(folder / "weights", "wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 29)
        file.write(b"x" * 5000)
    (folder / "deep" / "rows.txt").chmod(0o440)
    os.utime(folder / "deep" / "rows.txt", ns=(5, 7))
    os.utime(folder / "deep", ns=(11, 13))
    (folder / "deep").chmod(0o550)
    return folder


@pytest.mark.usefixtures("across")
def test_a_folder_is_moved_with_all_that_it_is(below: Path, tmp_path: Path) -> None:
    target = tmp_path / "moved"
    target.mkdir()  # an empty folder is replaced, as the kernel does
    os.replace(below, target)
    assert not below.exists()
    rows, weights = target / "deep" / "rows.txt", target / "weights"
    assert sorted(os.listdir(target)) == ["deep", "link", "pipe", "same.txt", "weights"]
    assert (rows.stat().st_mode & 0o777, rows.stat().st_mtime_ns) == (0o440, 7)
    assert ((target / "deep").stat().st_mode & 0o777, (target / "deep").stat().st_mtime_ns) == (0o550, 13)
    assert rows.samefile(target / "same.txt")
    assert os.readlink(target / "link") == "deep/rows.txt"
    assert (target / "pipe").is_fifo()
    assert weights.stat().st_size == 1 << 30
    assert weights.stat().st_blocks * 512 < 1 << 20
    with open(weights, "rb") as file:
        file.seek(1 << 29)
        assert file.read(5001) == b"x" * 5000 + b"\0"
    assert [name for name in os.listdir(tmp_path) if "file_copies" in name] == []


@pytest.mark.usefixtures("across")
def test_files_links_and_open_folders(below: Path, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    os.replace(below / "same.txt", tmp_path / "there")
    assert (tmp_path / "there").read_text() == "rows"
    os.rename(f"{below}/link", tmp_path / "link")
    assert os.readlink(tmp_path / "link") == "deep/rows.txt"
    folder = os.open(below, os.O_RDONLY)
    (below / "below").touch()
    os.rename("below", tmp_path / "from-open-folder", src_dir_fd=folder)
    os.close(folder)
    assert (tmp_path / "from-open-folder").exists()
    assert sorted(os.listdir(below)) == ["deep", "pipe", "weights"]


@pytest.mark.usefixtures("across")
@pytest.mark.parametrize(
    ("target", "number"), [("full", errno.ENOTEMPTY), ("file", errno.ENOTDIR), ("nowhere/x", errno.ENOENT)]
)
def test_what_can_not_be_replaced_is_said_as_of_a_move(below: Path, tmp_path: Path, target: str, number: int) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(OSError, match="below") as raised:
        os.rename(str(below), str(tmp_path / target))
    assert raised.value.errno == number
    assert (raised.value.filename, raised.value.filename2) == (str(below), str(tmp_path / target))
    assert sorted(os.listdir(tmp_path)) == before
    assert (below / "deep" / "rows.txt").read_text() == "rows"


@pytest.mark.usefixtures("across")
def test_more_than_is_copied_stays_refused(below: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_copies, "_MAX_MOVED_BYTES", 4096)
    with pytest.raises(OSError, match="Invalid cross-device link"):
        os.rename(below, tmp_path / "moved")
    assert sorted(os.listdir(tmp_path)) == ["below"]


def test_in_a_world(below: Path, tmp_path: Path) -> None:
    """A folder that was there before, a temporary file that becomes an output, and a copy of virtual weights."""
    world = runs_of(below).world
    if not world.has_overlay:
        pytest.skip("this kernel allows no user namespaces")
    program = """
        import json, os, shutil, sys, tempfile
        from pathlib import Path
        from gonogo.virtual.sandbox import file_copies
        try:
            os.rename("deep", "moved")
        except OSError as error:
            refused = error.errno
        file_copies.install()
        os.rename("deep", "moved")
        with tempfile.NamedTemporaryFile("w", delete=False) as file:
            file.write("x")
        os.replace(file.name, "came")
        shutil.copy2("weights", "copy")
        with open("weights", "rb") as one, open("streamed", "wb") as other:
            shutil.copyfileobj(one, other)
        blocks = [os.stat(name).st_blocks * 512 < 1 << 20 for name in ("copy", "streamed")]
        with open("copy", "rb") as file:
            file.seek(1 << 29)
            data = file.read(2).decode()
        print(json.dumps([refused, sorted(os.listdir()), Path("moved/rows.txt").stat().st_mtime_ns, blocks, data]))
    """
    done = subprocess.run(
        world.command([sys.executable, "-c", textwrap.dedent(program)]), cwd=below, capture_output=True, text=True,
        env=world.environment({**os.environ, "TMPDIR": str(runs_of(below).shared / "tmp")}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = ["came", "copy", "link", "moved", "pipe", "same.txt", "streamed", "weights"]
    assert json.loads(done.stdout) == [errno.EXDEV, names, 7, [True, True], "xx"]
    assert sorted(os.listdir(below)) == ["deep", "link", "pipe", "same.txt", "weights"]
