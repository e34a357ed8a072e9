"""Runs that are really killed between two writes of a save and resumed, and what gonogo says of each moment.

Of several ranks, one is killed before it opens a file, and the others go on as far as they can without it. Where it is
the next save, the run was killed after its first, resumed, and is killed in the save that it makes then.

    python benchmarks/life_interruptions.py [--really] [--only WORDS]

``--really`` trains on the CPU, is killed as each file of the save is about to be opened, resumes, and writes what the
resumed program has to ``tests/life/interruptions.json``; without it the lives are rehearsed and compared with that.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests" / "life")]
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from interruptions import CELLS, REMOVED, TRUTH, InterruptedCell  # noqa: E402
from lives import _equal, _error_of, _run, _warm  # noqa: E402
from results import write_base  # noqa: E402
from truth_cells import chosen_cells  # noqa: E402


def _watch(folder: Path, killed: tuple[int, str] | None, rank: int) -> None:
    """Note each file that is opened to be written or removed; end the process where it is the one of that rank."""
    import safetensors.torch
    import torch

    noted: list[str] = []

    def comes(path: Any, said: str = "") -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.path.relpath(os.path.abspath(os.fsdecode(path)), folder) + said
        if name.startswith(("out/checkpoint-", "ck", "state")) and name not in noted:
            noted.append(name)
            if killed == (rank, name):
                os._exit(9)
            with open(folder / "order.txt", "a", encoding="utf-8") as file:
                file.write(f"{rank} {name}\n")

    def on_audit(event: str, args: Any) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR):
            comes(args[0])
        elif (event == "shutil.rmtree" or (event == "os.remove" and args[1] == -1)) and os.path.lexists(args[0]):
            comes(args[0], REMOVED)  # within a tree, it is one of the tree

    def first(write: Any, place: int) -> Any:
        def followed(*args: Any, **kwargs: Any) -> Any:
            comes(args[place] if len(args) > place else None)
            return write(*args, **kwargs)

        return followed

    def rename(source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        comes(target)
        move(source, target, *args, **kwargs)

    move, os.rename = os.rename, rename
    sys.addaudithook(on_audit)  # what is written by C++ and Rust is no event of Python's
    torch.save = first(torch.save, 1)
    safetensors.torch.serialize_file = first(safetensors.torch.serialize_file, 1)


def _told(folder: Path, ranks: int, moment: str) -> list[dict[str, Any] | None]:
    """What each rank told, which is forgotten then."""
    found = []
    for rank in range(ranks):
        path = folder / f"told.{rank}"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found.append(next((one for one in map(json.loads, lines) if one["moment"] == moment), None))
        path.unlink(missing_ok=True)
    return found


def really(cell: InterruptedCell) -> dict[str, str]:
    """By file after which the run was killed: what the resumed program has of its state.

    Of several ranks: by the rank that was killed, and the file that it was about to open.
    """
    words = [*cell.words.split(), *(["--use_cpu"] if cell.words.startswith("trainer.py") else [])]
    resumed = [*words, *(cell.resume_with or "").split()]
    with tempfile.TemporaryDirectory() as name:
        folder, moved = Path(name) / "run", Path(name) / "saved"
        folder.mkdir()
        write_base(folder)
        failed = _run(words, folder, "first", cell.ranks, functools.partial(_watch, folder, None))
        assert not failed, failed[-2000:]
        (folder / "order.txt").rename(order := Path(name) / "order.txt")
        shutil.copytree(folder, moved)
        earlier = _resumed(cell, folder, resumed)
        if not cell.next_save:
            return _killed(cell, order, words, resumed, [earlier])
        shutil.rmtree(folder)
        shutil.copytree(moved, folder)
        failed = _run(resumed, folder, "again", cell.ranks, functools.partial(_watch, folder, None))
        assert not failed, failed[-2000:]
        (folder / "order.txt").rename(order)
        newest = _resumed(cell, folder, resumed)
        return _killed(cell, order, resumed, resumed, [newest, earlier], moved)


def _resumed(cell: InterruptedCell, folder: Path, resumed: list[str]) -> list[dict[str, Any] | None]:
    """What each rank has that resumes from a complete save: what that doesn't restore, no kill can take."""
    for path in folder.glob("told.*"):
        path.unlink()
    failed = _run(resumed, folder, "second", cell.ranks, functools.partial(_watch, folder, None))
    assert not failed, failed[-2000:]
    return _told(folder, cell.ranks, "resumed")


def _killed(
    cell: InterruptedCell,
    order: Path,
    words: list[str],
    resumed: list[str],
    saves: list[list[dict[str, Any] | None]],
    begins_with: Path | None = None,
) -> dict[str, str]:
    """What each resume comes to; ``saves``: what one from each complete save has, the newest first."""
    found = {}
    for moment, killed in _moments(order, cell.ranks):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "run"
            if begins_with is None:
                folder.mkdir()
                write_base(folder)
            else:
                shutil.copytree(begins_with, folder)
            life = "first" if begins_with is None else "again"
            _run(words, folder, life, cell.ranks, functools.partial(_watch, folder, killed))
            _told(folder, cell.ranks, "next")
            error = _run(resumed, folder, "second", cell.ranks, functools.partial(_watch, folder, None))
            after = _told(folder, cell.ranks, "resumed")
        found[moment] = "raises" if error else kind_of_resume(saves, after)
        print(f"  {moment}: {found[moment]} {_error_of(error) if error else ''}", flush=True)
    return found


def _moments(order_file: Path, ranks: int) -> list[tuple[str, tuple[int, str] | None]]:
    """What each moment is called, and before which file of which rank the run is killed in it."""
    lines = order_file.read_text(encoding="utf-8").splitlines()
    first: dict[str, tuple[int, str]] = {}
    for rank, _, name in (line.partition(" ") for line in lines):
        first.setdefault(name, (int(rank), name))  # a folder that both make, or a log, is the first one's
    order = [*first.values()]
    if ranks > 1:
        return [(f"rank {rank} before {name}", (rank, name)) for rank, name in order]
    return [(written, following) for (_, written), following in zip(order, [*order[1:], None], strict=True)]


def kind_of_resume(saves: list[list[dict[str, Any] | None]], after: list[dict[str, Any] | None]) -> str:
    """What all ranks have beside what they have from each complete save: the newest first, the one before second."""
    kinds: set[str] = set()
    anew = []
    for rank, told in enumerate(after):
        befores = [one for save in saves if (one := save[rank]) is not None]
        if told is None or len(befores) < len(saves):
            return "raises"
        held = [_parts(before) for before in befores]
        has = _parts(told)
        for name in held[0] | held[-1]:
            equal = [_same(one.get(name), has.get(name)) for one in held]
            if not all(equal):
                kinds.add("newest" if equal[0] else "earlier" if equal[-1] else "lost")
            elif held[0].get(name) is not None and not name.startswith("batch"):
                kinds.add("same")
        anew.append(_is_anew(befores, told))
    if all(anew):
        return "anew"
    kinds.discard("same")
    if "lost" in kinds:
        return "half"
    return {frozenset(): "whole", frozenset({"newest"}): "whole", frozenset({"earlier"}): "earlier"}.get(
        frozenset(kinds), "mixed"
    )


def _parts(told: dict[str, Any]) -> dict[str, Any]:
    """What it had, by name; of what DTensors shard, the rank's own part."""
    whole = {f"{name}.": value for name, value in told["parameters"].items()} | told["moments"]
    return {**whole, **told["shards"], "steps": told["steps"], "scheduler": told["scheduler"], "batch": told["batch"]}


def _same(value: Any, other: Any) -> bool:
    return _equal(value, other) if isinstance(value, float) and isinstance(other, float) else value == other


def _is_anew(befores: list[dict[str, Any]], told: dict[str, Any]) -> bool:
    """Whether nothing that is trained is as it was at a save."""
    if told["steps"]:
        return False
    for before in befores:
        same = [
            name
            for name, value in before["parameters"].items()
            if value and _equal(value, told["parameters"].get(name))
        ]
        if any("norm" not in name for name in same):  # those are alike whenever they are drawn
            return False
    return True


def main() -> None:
    """Run the cells, or compare."""
    for_real, cells, truth = chosen_cells(__doc__, CELLS, TRUTH)
    if for_real:
        _warm()
        for cell in cells:
            print(cell.name, flush=True)
            truth[cell.name] = really(cell)
            TRUTH.write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
        return
    from interruptions import said
    from warm_worlds import WarmWorlds

    right = all_ = 0
    worlds = WarmWorlds()
    for cell in cells:
        with tempfile.TemporaryDirectory() as name, worlds.in_use():
            answers = said(cell, Path(name))
        every = truth[cell.name]
        print(f"{cell.name}: {json.dumps(answers)}", flush=True)
        # After the last write of one rank nothing is left to be killed in; of several it isn't known which is last.
        for file, kind in [*every.items()][:-1] if cell.ranks == 1 else every.items():
            if file not in answers:
                print(f"not tried: {cell.name}: killed {file}: really {kind}", flush=True)
                continue
            all_ += 1
            right += answers[file] == kind
            if answers[file] != kind:
                print(f"wrong: {cell.name}: killed {file}: {answers[file]}, really {kind}", flush=True)
    worlds.close()
    print(f"{right} of {all_} moments are as they really are")


if __name__ == "__main__":
    main()
