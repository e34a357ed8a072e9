"""Runs that are really killed between two writes of their first save and resumed, and what gonogo says of each moment.

Of several ranks, one is killed before it opens a file, and the others go on as far as they can without it.

    python benchmarks/life_interruptions.py [--really] [--only WORDS]

``--really`` trains on the CPU, is killed as each file of the save is about to be opened, resumes, and writes what the
resumed program has to ``tests/life/interruptions.json``; without it the lives are rehearsed and compared with that.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests" / "life")]
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from interruptions import CELLS, TRUTH, InterruptedCell  # noqa: E402
from lives import _equal, _error_of, _run, _warm  # noqa: E402
from results import write_base  # noqa: E402
from truth_cells import chosen_cells  # noqa: E402


def _watch(folder: Path, killed: tuple[int, str] | None, rank: int) -> None:
    """Note each file that is opened to be written; end the process where it is the one of that rank."""
    import safetensors.torch
    import torch

    noted: list[str] = []

    def opens(path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.path.relpath(os.path.abspath(os.fsdecode(path)), folder)
        if name.startswith(("out/checkpoint-", "ck", "state")) and name not in noted:
            noted.append(name)
            if killed == (rank, name):
                os._exit(9)
            with open(folder / "order.txt", "a", encoding="utf-8") as file:
                file.write(f"{rank} {name}\n")

    def on_audit(event: str, args: Any) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR):
            opens(args[0])

    def first(write: Any, place: int) -> Any:
        def followed(*args: Any, **kwargs: Any) -> Any:
            opens(args[place] if len(args) > place else None)
            return write(*args, **kwargs)

        return followed

    def rename(source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        opens(target)
        move(source, target, *args, **kwargs)

    move, os.rename = os.rename, rename
    sys.addaudithook(on_audit)  # what is written by C++ and Rust is no event of Python's
    torch.save = first(torch.save, 1)
    safetensors.torch.serialize_file = first(safetensors.torch.serialize_file, 1)


def _told(folder: Path, rank: int, moment: str) -> dict[str, Any] | None:
    path = folder / f"told.{rank}"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((one for one in map(json.loads, lines) if one["moment"] == moment), None)


def really(cell: InterruptedCell) -> dict[str, str]:
    """By file after which the run was killed: what the resumed program has of its state.

    Of several ranks: by the rank that was killed, and the file that it was about to open.
    """
    words = [*cell.words.split(), *(["--use_cpu"] if cell.words.startswith("trainer.py") else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_base(folder)
        failed = _run(words, folder, "first", cell.ranks, functools.partial(_watch, folder, None))
        assert not failed, failed[-2000:]
        lines = (folder / "order.txt").read_text(encoding="utf-8").splitlines()
        order = [(int(rank), name) for rank, _, name in (line.partition(" ") for line in lines)]
        before = [_told(folder, rank, "next") for rank in range(cell.ranks)]
    first: dict[str, tuple[int, str]] = {}
    for rank, name in order:  # a folder that both make, or a log, is the first one's
        first.setdefault(name, (rank, name))
    order = [*first.values()]
    moments: list[tuple[str, tuple[int, str] | None]] = (
        [(written, following) for (_, written), following in zip(order, [*order[1:], None], strict=True)]
        if cell.ranks == 1
        else [(f"rank {rank} before {name}", (rank, name)) for rank, name in order]
    )
    found = {}
    for moment, killed in moments:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_base(folder)
            _run(words, folder, "first", cell.ranks, functools.partial(_watch, folder, killed))
            for told in folder.glob("told.*"):
                told.unlink()
            resumed = [*words, *(cell.resume_with or "").split()]
            error = _run(resumed, folder, "second", cell.ranks, functools.partial(_watch, folder, None))
            after = [_told(folder, rank, "resumed") for rank in range(cell.ranks)]
        found[moment] = "raises" if error else _kind_of_ranks(before, after)
        print(f"  {moment}: {found[moment]} {_error_of(error) if error else ''}", flush=True)
    return found


def _kind_of_ranks(before: list[dict[str, Any] | None], after: list[dict[str, Any] | None]) -> str:
    kinds = {
        "raises" if told is None or was is None else _kind(was, told) for was, told in zip(before, after, strict=True)
    }
    return kinds.pop() if len(kinds) == 1 else "raises" if "raises" in kinds else "half"


def _kind(before: dict[str, Any], after: dict[str, Any]) -> str:
    same = [
        *(_equal(value, after["parameters"].get(name)) for name, value in before["parameters"].items()),
        *(_equal(value, after["moments"].get(name)) for name, value in before["moments"].items()),
        before["steps"] == after["steps"], before["scheduler"] == after["scheduler"],
    ]  # fmt: skip
    trained = [_equal(value, after["parameters"].get(name)) for name, value in before["parameters"].items() if value]
    if all(same):
        return "whole" if before["batch"] == after["batch"] else "half"
    ones = [name for name in before["parameters"] if "norm" in name]  # alike whenever they are drawn
    return "anew" if sum(trained) <= len(ones) and not after["steps"] else "half"


def main() -> None:
    """Run the cells, or compare."""
    for_real, cells, truth = chosen_cells(__doc__, CELLS, TRUTH)
    if for_real:
        os.environ["ACCELERATE_USE_CPU"] = "true"  # else its ranks are no world
        _warm()
        for cell in cells:
            print(cell.name, flush=True)
            truth[cell.name] = really(cell)
            TRUTH.write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
        return
    from interruptions import said

    right = all_ = 0
    for cell in cells:
        with tempfile.TemporaryDirectory() as name:
            answers = said(cell, Path(name))
        every = truth[cell.name]
        begins = next((number for number, file in enumerate(every) if file in answers), 0)
        print(f"{cell.name}: {json.dumps(answers)}", flush=True)
        # Before the first state, and after the last write, none is tried.
        for file, kind in [*every.items()][begins:-1] if cell.ranks == 1 else every.items():
            if cell.ranks > 1 and file not in answers:
                continue
            all_ += 1
            right += answers.get(file) == kind
            if answers.get(file) != kind:
                print(f"wrong: {cell.name}: killed {file}: {answers.get(file)}, really {kind}", flush=True)
    print(f"{right} of {all_} moments are as they really are")


if __name__ == "__main__":
    main()
