"""Triton where it isn't installed: found by an import that would end the program, and by no other."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch
from virtual.worlds import virtual_session

import gonogo.virtual.stand_ins as stand_ins
from gonogo.virtual.ranks.session import Session
from gonogo.virtual.unsupported import UnsupportedOperator

TABLE = Path(*stand_ins.__path__) / "with_triton" / "triton" / "names.json"
KERNELS = """
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=8), triton.Config({"BLOCK": 32})], key=["n"])
@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def copy(source, target, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, DTYPE: tl.constexpr = tl.float32):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, libdevice.exp(tl.load(source + at)))

def copied(source):
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    target = torch.empty_like(source)
    copy[lambda meta: (triton.cdiv(source.numel(), meta["BLOCK"]),)](source, target, source.numel())
    return target
"""
LOAD = "def load():\n    import triton\n    return triton\n"
UNTAKEN = [
    "try:\n    import triton\nexcept ImportError:\n    triton = None\n",
    "try:\n    import triton\nexcept Exception:\n    triton = None\n",
    "import contextlib\ntriton = None\nwith contextlib.suppress(ImportError):\n    import triton\n",
    "from importlib.util import find_spec\ntriton = find_spec('triton')\n",
    f"{LOAD}try:\n    triton = load()\nexcept ModuleNotFoundError:\n    triton = None\n",
]
TAKEN = [
    "import triton\n",
    f"{LOAD}try:\n    triton = load()\nexcept Exception as wrong:\n    triton = None\n",
    "try:\n    import triton\nexcept ImportError as wrong:\n    raise RuntimeError('install triton') from wrong\n",
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    if find_spec("triton") is not None:
        pytest.skip("Triton is installed here: the stand-in is not what is found")
    with virtual_session(tmp_path_factory.mktemp("scratch")) as session:
        yield session


@pytest.fixture(autouse=True)
def forgotten(session: Session) -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        del sys.modules[name]


def executed(text: str, folder: Path) -> ModuleType:
    path = folder / "of_a_program.py"
    path.write_text(text)
    spec = spec_from_file_location("of_a_program", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("text", UNTAKEN)
def test_code_that_has_a_way_without_it_takes_that(text: str, tmp_path: Path) -> None:
    assert executed(text, tmp_path).triton is None


@pytest.mark.parametrize("text", TAKEN)
def test_an_import_that_would_end_the_program_finds_it(text: str, tmp_path: Path, session: Session) -> None:
    assert executed(text, tmp_path).triton.cdiv(7, 2) == 4
    assert any("Triton is installed" in one.what for one in session.ledger.entries())


def test_kernels_are_launched_for_nothing(tmp_path: Path, session: Session) -> None:
    source = torch.ones(100, device="cuda")
    module = executed(KERNELS, tmp_path)
    assert module.copied(source).shape == (100,)
    with pytest.raises(ValueError, match="cpu tensor"):
        module.copied(torch.ones(100))
    with pytest.raises(RuntimeError, match="outside of the scope of a kernel"):
        module.copy.fn.fn(source, source, 1)


def test_constants_compare_and_compute_as_their_values(session: Session) -> None:
    constexpr = importlib.import_module("triton.language").constexpr
    mean, total = constexpr(3), constexpr(constexpr(1))
    assert 3 == mean  # noqa: SIM300  as a launcher compares the mode that it was given
    assert not 1 == mean  # noqa: SIM201, SIM300
    assert mean != total
    assert (mean + 1).value == (1 + mean).value == 4
    assert (1 - mean).value == -2
    assert mean > total
    assert [0, 1, 2, 3][mean] == 3
    assert {constexpr(3): "mean"}[mean] == "mean"


def test_every_name_of_the_real_package_can_be_imported(session: Session) -> None:
    importlib.import_module("triton")
    missing = []
    for name, row in json.loads(TABLE.read_text(encoding="utf-8"))["modules"].items():
        module = importlib.import_module(name)
        names = [*row.get("functions", ()), *row.get("classes", ()), *row.get("values", ()), *row.get("imported", ())]
        missing += [f"{name}.{each}" for each in names if not hasattr(module, each)]
        assert not hasattr(module, "no_such_name")
    assert missing == []
    assert importlib.import_module("triton.language").core.dtype is not None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("triton.no_such_module")
    with pytest.raises(UnsupportedOperator, match="Triton is not installed here"):
        sys.modules["triton"].testing.do_bench(print)


@pytest.mark.slow
def test_torch_compiles_beside_it(session: Session) -> None:
    importlib.import_module("triton")
    importlib.import_module("torch._inductor.runtime.triton_compat")
    assert "nvidia" in importlib.import_module("triton.backends").backends
