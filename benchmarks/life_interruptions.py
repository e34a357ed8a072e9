"""Runs that are really killed between two writes of their first save and resumed, and what gonogo says of each moment.

    python benchmarks/life_interruptions.py [--really] [--only WORDS]

``--really`` trains on the CPU, is killed as each file of the save is about to be opened, resumes, and writes what the
resumed program has to ``tests/life/interruptions.json``; without it the lives are rehearsed and compared with that.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests" / "life")]
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from interruptions import CELLS, TRUTH, InterruptedCell  # noqa: E402
from lives import _as_rank, _equal, _error_of, _warm  # noqa: E402
from results import write_base  # noqa: E402
from truth_cells import chosen_cells  # noqa: E402

_PORT = 29817


def _run(words: list[str], folder: Path, life: str, killed_before: str | None) -> bool:
    """Whether the program came to its end, or to where it tells its state."""
    child = os.fork()
    if not child:
        _watch(folder, killed_before)
        _as_rank(words, folder, life, 0, 1, _PORT)
    _, status = os.waitpid(child, 0)
    return status == 0


def _watch(folder: Path, killed_before: str | None) -> None:
    """Note each file that is opened to be written; end the process where it is that one."""
    import safetensors.torch
    import torch

    noted: list[str] = []

    def opens(path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.path.relpath(os.path.abspath(os.fsdecode(path)), folder)
        if name.startswith(("out/checkpoint-", "ck", "state")) and name not in noted:
            noted.append(name)
            if name == killed_before:
                os._exit(9)
            with open(folder / "order.txt", "a", encoding="utf-8") as file:
                file.write(name + "\n")

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


def _told(folder: Path, moment: str) -> dict[str, Any] | None:
    path = folder / "told.0"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((one for one in map(json.loads, lines) if one["moment"] == moment), None)


def really(cell: InterruptedCell) -> dict[str, str]:
    """By file after which the run was killed: what the resumed program has of its state."""
    words = cell.words.split()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_base(folder)
        assert _run(words, folder, "first", None), (folder / "errors.0").read_text(encoding="utf-8")[-2000:]
        order = (folder / "order.txt").read_text(encoding="utf-8").split()
        before = _told(folder, "next")
    assert before is not None
    found = {}
    for written, following in zip(order, [*order[1:], None], strict=True):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_base(folder)
            _run(words, folder, "first", following)
            went = _run([*words, *(cell.resume_with or "").split()], folder, "second", None)
            after = _told(folder, "resumed")
            errors = (folder / "errors.0").read_text(encoding="utf-8")
        found[written] = _kind(before, after) if went and after is not None else "raises"
        print(f"  {written}: {found[written]} {_error_of(errors) if found[written] == 'raises' else ''}", flush=True)
    return found


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
        for file, kind in [*every.items()][
            begins:-1
        ]:  # before the first state, and after the last write, none is tried
            all_ += 1
            right += answers.get(file) == kind
            if answers.get(file) != kind:
                print(f"wrong: {cell.name}: killed after {file}: {answers.get(file)}, really {kind}", flush=True)
    print(f"{right} of {all_} moments are as they really are")


if __name__ == "__main__":
    main()
