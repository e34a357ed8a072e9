"""Data that only users have: inferred from the code that reads it, or named with the script that writes it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from users_data import ARRAYS, EVERY, PRODUCED, TABLES, UsersData

from gonogo.evidence.prepared import PreparedStandIns, read_prepared
from gonogo.evidence.rehearsal.record import AcceleratorFacts, FailedLookup, Failure, Frame, RankRecord, RehearsalRecord
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Verdict
from gonogo.prepare.generated.array_files import FREE_SIZES, ArrayLayout, array_file
from gonogo.prepare.inferred.array_inputs import refine_arrays
from gonogo.prepare.inferred.producers import find_producer
from gonogo.prepare.inferred.read_scope import scope_at
from gonogo.prepare.inferred.table_inputs import table_columns
from gonogo.prepare.prepare import EnvironmentOptions, parse_prepare_options, prepare, read_launches
from gonogo.prepare.required_inputs import RequiredInput
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.limits.certificate import apply_limits
from gonogo.rehearse.limits.world import ProjectWorld

TOKEN_SHARDS, LATENTS, EMBEDDINGS = ARRAYS
FORECASTING, TABULAR, READINGS = TABLES


def write(case: UsersData, folder: Path) -> list[str]:
    """The program's files; its command."""
    for name, text in (("train.py", case.program), *case.others):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    start = ["torchrun", "--nproc_per_node", str(case.gpus)] if case.gpus > 1 else ["python"]
    return [*start, "train.py", *case.options]


@pytest.mark.very_slow
@pytest.mark.parametrize("case", EVERY, ids=[case.name for case in EVERY])
def test_the_verdict_is_as_argued(tmp_path: Path, case: UsersData) -> None:
    if "h5py" in case.program:
        pytest.importorskip("h5py")
    command = write(case, tmp_path)
    words = ["rehearse", "--format", "json", "--environment", "none", "--steps", "1", "--gpus", f"{case.gpus}xA100-80G"]
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", *words, "--", *command], cwd=tmp_path, capture_output=True, text=True
    )
    report = json.loads(done.stdout)
    assert report["verdict"] == case.verdict, (report["findings"], report["skipped"])
    assert all(word in done.stdout for word in case.says)
    if case.verdict == "GO":
        assert any("data of another shape" in one["what"] for one in report["skipped"])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_numpy_and_torch_read_what_is_written(dtype: str, shape: tuple[int, ...]) -> None:
    layout = ArrayLayout(dtype, shape)
    array = np.load(io.BytesIO(array_file(".npy", layout, 1)))
    tensor = torch.load(io.BytesIO(array_file(".pt", layout, 1)), weights_only=True)
    assert (array.shape, str(array.dtype), tuple(tensor.shape)) == (shape, dtype, shape)
    assert (tensor.numpy() == array).all()


def test_token_ids_are_small_in_either_width() -> None:
    ids = np.load(io.BytesIO(array_file(".npy", ArrayLayout("uint16", (4096,)), 0)))
    assert ids.dtype == np.uint16
    assert ids.max() < 50
    assert ids.view(np.uint32).max() < 50


def probed(
    case: UsersData, folder: Path, monkeypatch: pytest.MonkeyPatch, *records: Callable[[], RankRecord]
) -> PreparedStandIns:
    """What ``prepare`` has made in the end, with a first worker that ends as the records say."""
    monkeypatch.chdir(folder)
    command = write(case, folder)
    done = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="completed")
    worker = iter(records)
    prepare(command, parse_prepare_options(8, 32, ()), EnvironmentOptions(as_installed=True), write=True,
            probe=lambda: next(worker, lambda: done)())  # fmt: skip
    table = read_prepared(folder / "gonogo-prepared")
    assert table is not None
    return table


def not_found(folder: Path, path: str, line: int, *, listed: bool = False) -> Callable[[], RankRecord]:
    def record() -> RankRecord:
        frame = Frame(str(folder / "train.py"), line, "__init__", "", "user")
        rank = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="raised")
        message = f"[Errno 2] No such file or directory: '{path}'" if not listed else f"no files in {path}"
        rank.failure = Failure("ValueError" if listed else "FileNotFoundError", message, (frame,), "load", 0)
        rank.absent = [FailedLookup("file", path, frame)] if listed else []
        return rank

    return record


def test_a_listed_folder_of_token_shards_has_a_file_of_each_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = probed(TOKEN_SHARDS, tmp_path, monkeypatch, not_found(tmp_path, "web_tokens", 16))
    (place,) = table.paths.values()
    files = sorted((tmp_path / "gonogo-prepared" / place).iterdir())
    assert {one.name.partition("_")[0] for one in files} == {"train", "val"}
    assert {one.suffix for one in files} == {".npy"}
    assert len(np.load(files[0])) > 2 * 2 * 8 * 512
    assert list(table.shapes.values()) == ["uint16[4194304]"]


def test_files_that_a_pattern_finds_match_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = probed(EMBEDDINGS, tmp_path, monkeypatch, not_found(tmp_path, "embedded/*.pt", 11, listed=True))
    assert all(path.startswith(f"{tmp_path}/embedded/") and path.endswith(".pt") for path in table.paths)
    assert table.shapes == {f"{tmp_path}/embedded/*.pt": "float32[?37]"}


def test_folders_side_by_side_have_as_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = [not_found(tmp_path, f"/nowhere/features/images_{name}", 13) for name in ("features", "labels")]
    table = probed(LATENTS, tmp_path, monkeypatch, *looked)
    counts = {len(list((tmp_path / "gonogo-prepared" / place).iterdir())) for place in table.paths.values()}
    assert len(table.paths) == 2
    assert len(counts) == 1
    assert min(counts) >= 2 * 16 * 2  # two batches of each of two ranks
    assert sorted(table.shapes.values()) == ["float32[?37]", "int64[]"]


Use = Callable[..., object]


def latents(x: torch.Tensor, y: torch.Tensor) -> object:
    """The model of LATENTS, as its loader hands it the files."""
    x, y = x.squeeze(dim=1), y.squeeze(dim=1)
    _, _, height, width = x.shape
    assert height == width == 32, f"Input size ({height}x{width}) doesn't match the model's (32)."
    return torch.nn.Conv2d(4, 8, 2, 2)(x).mean() + torch.nn.Embedding(11, 8)(y).mean()


def sequences(x: torch.Tensor) -> object:
    """The model of EMBEDDINGS."""
    _, _, _ = x.shape
    return torch.nn.GRU(128, 128, batch_first=True)(torch.nn.Linear(384, 128)(x))


def spectra(x: torch.Tensor, y: torch.Tensor) -> object:
    """A classifier of spectra: 80 bands, any length."""
    hidden = torch.nn.Conv1d(80, 16, 3, padding=1)(x).mean(dim=2)
    return torch.nn.functional.cross_entropy(torch.nn.Linear(16, 5)(hidden), y)


@pytest.mark.parametrize(
    ("use", "paths", "shapes"),
    [
        (latents, ("features", "labels"), ("float32[4, 32, 32]", "int64[1]")),
        (sequences, ("embedded",), ("float32[37, 384]",)),
        (spectra, ("mel", "labels"), ("float32[80, 41]", "int64[]")),
    ],
)
def test_the_errors_of_real_torch_lead_to_the_shape(use: Use, paths: tuple[str, ...], shapes: tuple[str, ...]) -> None:
    """What a first worker ends with is torch's own error, on whose words the next shape is based."""
    arrays = [
        RequiredInput("data", path, path=path, state="made", suffix=".npy",
                      layout=ArrayLayout("int64", ()) if path == "labels" else ArrayLayout("float32", (37,)))
        for path in paths
    ]  # fmt: skip
    tried: set[tuple[str, ...]] = set()
    for _ in range(20):
        batch = []
        for one in arrays:
            assert one.layout is not None
            value = np.load(io.BytesIO(array_file(".npy", one.layout, 0)))
            batch.append(torch.stack([torch.from_numpy(value)] * 8))
        try:
            use(*batch)
            break
        except Exception as error:
            frame = Frame(__file__, traceback.extract_tb(error.__traceback__)[-1].lineno or 0, "use", "", "user")
            failure = Failure(type(error).__name__, str(error), (frame,), "forward", 1)
            if not refine_arrays(failure, arrays, tried):
                pytest.fail(f"nothing follows from {error}")
    assert tuple(str(one.layout) for one in arrays) == shapes


@pytest.mark.parametrize("message", ["boom", "CUDA error: an illegal memory access was encountered", ""])
def test_an_error_that_asks_for_nothing_changes_nothing(message: str) -> None:
    array = RequiredInput("data", "x", path="x", state="made", layout=ArrayLayout("float32", (37,)))
    failure = Failure("RuntimeError", message, (), "forward", 1)
    assert not refine_arrays(failure, [array], set())
    assert array.layout == ArrayLayout("float32", (37,))


def test_no_shape_is_tried_twice() -> None:
    array = RequiredInput("data", "x", path="x", state="made", layout=ArrayLayout("float32", (37,)))
    tried: set[tuple[str, ...]] = set()
    more = Failure("ValueError", "not enough values to unpack (expected 2, got 1)", (), "forward", 1)
    fewer = Failure("ValueError", "too many values to unpack (expected 1)", (), "forward", 1)
    assert refine_arrays(more, [array], tried)
    assert not refine_arrays(fewer, [array], tried)


@pytest.mark.parametrize(
    ("case", "line", "columns"),
    [
        (FORECASTING, 11, {"date": "date", "OT": "float", "0": "float", "319": "float"}),
        (TABULAR, 6, {"tenure": "float", "balance": "float", "logins": "float", "churned": "label"}),
        (READINGS, 5, {"measured_at": "date", "temperature": "float", "pressure": "float"}),
    ],
)
def test_columns_are_those_that_the_code_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: UsersData, line: int, columns: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runs, _ = read_launches(write(case, tmp_path))
    scope = scope_at(Script(SourceFile.read(tmp_path / "train.py")), line)
    assert scope is not None
    found = table_columns(scope, runs[0])
    assert found.items() >= columns.items()
    assert sum(kind == "float" for kind in found.values()) == (321 if case is FORECASTING else len(columns) - 1)


def test_a_key_of_a_dictionary_is_no_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = """\
import pandas as pd
class Rows:
    def __init__(self, flag="train"):
        kinds = {"train": 0, "test": 1}
        self.kind = kinds[flag]
        self.values = pd.read_csv("a.csv")[["speed"]].values
"""
    (tmp_path / "train.py").write_text(text)
    runs, _ = read_launches(["python", "train.py"])
    scope = scope_at(Script(SourceFile.read(tmp_path / "train.py")), 6)
    assert scope is not None
    assert table_columns(scope, runs[0]) == {"speed": "float"}


def test_texts_for_a_tokenizer_are_no_table_of_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'import pandas as pd\ntable = pd.read_csv("a.csv")\nids = tokenizer(list(table["review"].values))\n'
    (tmp_path / "train.py").write_text(text)
    runs, _ = read_launches(["python", "train.py"])
    scope = scope_at(Script(SourceFile.read(tmp_path / "train.py")), 2)
    assert scope is not None
    assert table_columns(scope, runs[0]) == {}


@pytest.mark.parametrize("case", PRODUCED, ids=[case.name for case in PRODUCED])
def test_the_script_that_writes_a_file_is_named(tmp_path: Path, case: UsersData) -> None:
    write(case, tmp_path)
    path = "cache/motion_statistics.npz" if "npz" in case.says[0] else case.says[0]
    assert find_producer(str(tmp_path / path), tmp_path) == case.says[1]


@pytest.mark.parametrize(
    ("wanted", "line"),
    [("seqs_train.json", 6), ("seqs_val-2.json", 6), ("sets_train.json", None), ("seqs_train.npz", None)],
)
def test_the_script_that_fills_in_a_files_name_is_named(tmp_path: Path, wanted: str, line: int | None) -> None:
    (tmp_path / "preprocess.py").write_text(
        "import json, os\n\n\ndef save(folder, split, found):\n"
        "    path = os.path.join(folder, f'seqs_{split}.json')\n    with open(path, 'w') as file:\n"
        "        json.dump(found, file)\n"
    )
    producer = None if line is None else f"preprocess.py:{line}"
    assert find_producer(str(tmp_path / "data" / wanted), tmp_path) == producer


def test_a_script_that_only_reads_a_file_is_not_its_producer(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text('with open("data/graphs_train.pkl", "rb") as file:\n    print(file.read())\n')
    assert find_producer(str(tmp_path / "data/graphs_train.pkl"), tmp_path) is None


def failed_after_reading(folder: Path, read: str, kind: str = "RuntimeError", phase: str = "load") -> RehearsalRecord:
    frame = Frame(str(folder / "train.py"), 3, "main", "", "user")
    rank = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="raised")
    rank.failure = Failure(kind, "no such thing", (frame,), "load", 0)  # type: ignore[arg-type]
    rank.phases = [phase]  # type: ignore[list-item]
    rank.absent = [FailedLookup("made", read, frame)] if read else []
    facts = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0)
    return RehearsalRecord(["python", "train.py"], str(folder), 1, 1, 1, facts, 2, None, ranks=[rank])


@pytest.mark.parametrize(
    ("read", "kind", "phase", "certain"),
    [
        ("{here}/rows/000000.npy", "RuntimeError", "load", False),
        ("{here}/rows", "AssertionError", "load", False),
        ("", "RuntimeError", "forward", False),
        ("", "RuntimeError", "load", True),
        ("{here}/rows", "NameError", "forward", True),
    ],
)
def test_what_was_inferred_proves_no_failure(tmp_path: Path, read: str, kind: str, phase: str, certain: bool) -> None:
    """A shape that gonogo has chosen leads to no certain NO-GO of what the program does with it."""
    (tmp_path / "train.py").write_text("a = 1\nb = 2\nraise RuntimeError(a + b)\n")
    record = failed_after_reading(tmp_path, read.format(here=tmp_path), kind, phase)
    rows = str(tmp_path / "rows")
    table = PreparedStandIns(paths={rows: "data/rows"}, shapes={rows: "float32[4, ?37]"})
    world = ProjectWorld(tmp_path, tmp_path, prepared=table)
    apply_limits(record, world)
    assert (record.ranks[0].outcome == "raised") is certain
    if not certain:
        assert "float32[4, 37]" in record.ranks[0].unsupported[0].why


def test_a_go_names_the_shape_among_what_was_not_covered(tmp_path: Path) -> None:
    rank = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="completed")
    rank.phases = ["load", "forward", "backward", "step", "exit"]
    facts = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0)
    record = RehearsalRecord(["python", "train.py"], str(tmp_path), 1, 1, 1, facts, 2, None, ranks=[rank])
    record.inferred = {str(tmp_path / "rows"): "float32[4, ?37]", str(tmp_path / "a.csv"): "date, OT"}
    report = rehearsal_report(record, str(tmp_path))
    assert report.verdict is Verdict.GO
    told = {one.what.en: one.why.en for one in report.skipped}
    assert "had to guess at least one size" in told["rows: data of another shape than float32[4, 37]"]
    assert "a.csv: data of another shape than date, OT" in told


def test_the_sizes_of_what_nothing_determines_are_no_models() -> None:
    usual = {16, 32, 48, 64, 80, 96, 128, 224, 256, 384, 512, 768, 1024}
    assert not usual & set(FREE_SIZES)
