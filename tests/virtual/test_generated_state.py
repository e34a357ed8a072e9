"""A checkpoint that gonogo has generated: any model takes it, and keeps its weights; others are loaded as before."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from virtual.worlds import virtual_session

from gonogo.evidence.rehearsal.record import Failure, Frame
from gonogo.prepare.generated.array_files import checkpoint_file
from gonogo.prepare.inferred.checkpoint_inputs import infer_checkpoint_input
from gonogo.virtual.ranks.session import Session
from gonogo.virtual.weights.generated_state import GeneratedState


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with virtual_session(tmp_path_factory.mktemp("scratch")) as session:
        yield session


def from_path(folder: Path) -> Any:
    (folder / "backbone.pth").write_bytes(checkpoint_file())
    return torch.load(folder / "backbone.pth", map_location="cpu")


def from_bytes(folder: Path) -> Any:
    return torch.load(io.BytesIO(checkpoint_file()), map_location="cpu", weights_only=False)


@pytest.mark.parametrize("load", [from_path, from_bytes])
def test_a_model_keeps_its_weights(session: Session, tmp_path: Path, load: Callable[[Path], Any]) -> None:
    state = load(tmp_path)
    assert isinstance(state, GeneratedState)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(state["optimizer"])
    assert model.load_state_dict(state["model"]["inner"]) == ([], [])
    assert model.load_state_dict({name.replace("module.", ""): value for name, value in state.items()}) == ([], [])
    del state["head.weight"]
    assert "model" not in state
    assert state.get("epoch", 3) == state.pop("epoch", 3) == 3
    assert any("checkpoint that gonogo generated" in one.what for one in session.ledger.entries())


def test_a_real_one_is_compared(session: Session, tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2, 2)}, tmp_path / "real.pt")
    torch.save({}, tmp_path / "empty.pt")
    state = torch.load(tmp_path / "real.pt")
    assert type(state) is type(torch.load(tmp_path / "empty.pt")) is dict
    with pytest.raises(RuntimeError, match="size mismatch"):
        torch.nn.Linear(4, 4).load_state_dict(state, strict=False)


PROGRAM = """
import torch

def read(path):
    with open(path, "rb") as file:
        return torch.load(file)

def main(model):
    {uses}

main(None)
"""


@pytest.mark.parametrize(
    ("uses", "path", "told"),
    [
        ("model.load_state_dict(read('/data/a.pth'))", "/data/a.pth", True),
        ("model.load_state_dict(read('/data/a.pth'))", "/data/a.npy", False),
        ("return read('/data/a.pth').mean()", "/data/a.pth", False),
    ],
)
def test_what_a_model_is_loaded_from_is_a_checkpoint(tmp_path: Path, uses: str, path: str, told: bool) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM.format(uses=uses))
    frames = (
        Frame(str(file), 12, "<module>", "main(None)", "user"),
        Frame(str(file), 10, "main", uses, "user"),
        Frame(str(file), 5, "read", 'with open(path, "rb") as file:', "user"),
    )
    failure = Failure("FileNotFoundError", f"[Errno 2] No such file or directory: '{path}'", frames, "load", 0)
    assert (infer_checkpoint_input(path, failure) is not None) is told
