"""What is sent to the hub succeeds, and nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import msgspec
import pytest
from huggingface_hub import constants, hf_api

from gonogo.evidence.prepared import MANIFEST, PreparedStandIns
from gonogo.virtual.sandbox import hub, network, prepared


@pytest.fixture
def noted() -> Iterator[list[str]]:
    notes: list[str] = []
    refused = network.install(notes.append)
    undo = hub.install(notes.append)
    yield notes
    undo()
    refused.undo()


def test_a_model_is_pushed(noted: list[str], tmp_path: Path) -> None:
    api = huggingface_hub.HfApi()
    assert api.create_repo("somebody/model", private=True, exist_ok=True).repo_id == "somebody/model"
    assert api.create_repo("model").repo_id == "user/model"
    assert api.create_repo("somebody/rows", repo_type="dataset").repo_type == "dataset"
    (tmp_path / "model.safetensors").touch()
    done = api.upload_folder(repo_id="somebody/model", folder_path=tmp_path, commit_message="Trained")
    assert (done.commit_message, done.repo_url.repo_id) == ("Trained", "somebody/model")
    job = api.upload_folder(repo_id="somebody/model", folder_path=tmp_path, run_as_future=True)
    assert job.done()
    assert job.result().oid
    assert set(noted) == {hub.HUB_UPLOAD_ASSUMPTION}


def test_by_the_modules_functions_as_libraries_do(noted: list[str], tmp_path: Path) -> None:
    assert hf_api.create_repo("somebody/model", exist_ok=True).repo_id == "somebody/model"
    hf_api.upload_file(path_or_fileobj=b"x", path_in_repo="a", repo_id="somebody/model")
    hf_api.create_branch("somebody/model", branch="step-2")
    assert hf_api.whoami()["name"] == "user"
    assert set(noted) == {hub.HUB_UPLOAD_ASSUMPTION}


def test_what_is_fetched_is_refused_as_before(noted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # as a rehearsal has it from the start
    with pytest.raises(Exception, match=r"[Oo]ffline|network"):
        huggingface_hub.HfApi().model_info("somebody/model")
    assert hub.HUB_UPLOAD_ASSUMPTION not in noted


def test_a_folder_of_the_users_is_no_repository_of_the_hub(
    noted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "vicuna-7b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assumed: list[str] = []
    undo = prepared.install("", lambda what, kind="": assumed.append(what.en), lambda what: None, lambda *what: None)
    try:
        assert not hf_api.file_exists("models/vicuna-7b", "config.json")
        assert not huggingface_hub.HfApi().file_exists("models/vicuna-7b", filename="config.json")
    finally:
        undo()
    assert "models/vicuna-7b" in assumed[0]


def test_a_slice_by_numbers_of_rows_has_the_generated_rows(tmp_path: Path) -> None:
    load = pytest.importorskip("datasets.load")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "train.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    table = PreparedStandIns(datasets={"openwebtext": "rows"})
    (tmp_path / MANIFEST).write_bytes(msgspec.json.encode(table))
    undo = prepared.install(str(tmp_path), lambda what, kind="": None, lambda what: None, lambda *what: "")
    try:
        for split in ("train[:-100000]", "train[-100_000:]", "train[50000:60000]", "train[:1]"):
            rows = load.load_dataset("openwebtext", split=split, cache_dir=str(tmp_path / "cache"))
            assert len(rows) == (1 if split == "train[:1]" else 2), split
        with pytest.raises(ValueError, match="test"):
            load.load_dataset("openwebtext", split="test[:1]", cache_dir=str(tmp_path / "cache"))
    finally:
        undo()
