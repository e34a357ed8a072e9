"""What libraries ask the hub about a repository is answered for names that were prepared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import msgspec
import pytest
from huggingface_hub import constants, hf_api

from gonogo.evidence.prepared import MANIFEST, PreparedStandIns
from gonogo.evidence.published.models import published_model
from gonogo.evidence.rehearsal.record import MissingInput
from gonogo.prepare.generated.model_folder import model_files
from gonogo.virtual.sandbox import network, prepared, questions

NAME = "Qwen/Qwen2.5-7B-Instruct"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    model = published_model(NAME)
    assert model is not None
    for name, content in model_files(model).items():
        path = folder / "models" / "it" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / "data" / "rows" / "train").mkdir(parents=True)
    (folder / "data" / "rows" / "train" / "0.jsonl").write_text("{}\n")
    table = PreparedStandIns({NAME.lower(): "models/it"}, {"somebody/rows": "data/rows"})
    (folder / MANIFEST).write_bytes(msgspec.json.encode(table))
    return folder


@pytest.fixture
def missed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[MissingInput]]:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # as a rehearsal has it: without, the hub's client waits
    found: list[MissingInput] = []
    refused = network.install(lambda host: None)
    undo = prepared.install(str(folder), lambda what, kind="": None, found.append, lambda name, place, file: place)
    yield found
    undo()
    refused.undo()


def test_a_repository_tells_of_itself(missed: list[MissingInput]) -> None:
    for ask in (huggingface_hub.model_info, hf_api.model_info, huggingface_hub.HfApi().model_info, hf_api.repo_info):
        info = ask(NAME, revision="main")
        assert (info.id, info.private) == (NAME, False)
        assert {"config.json", "tokenizer.json", "model.safetensors"} <= {one.rfilename for one in info.siblings or ()}
        assert not any(tag.startswith("base_model") for tag in info.tags or ())
    rows = huggingface_hub.HfApi().repo_info("somebody/rows", repo_type="dataset")
    assert [one.rfilename for one in rows.siblings or ()] == ["train/0.jsonl"]
    assert huggingface_hub.dataset_info("somebody/rows").id == "somebody/rows"
    assert not missed


def test_its_files_are_listed(missed: list[MissingInput]) -> None:
    assert {"config.json", "model.safetensors"} <= set(huggingface_hub.list_repo_files(NAME))
    assert list(huggingface_hub.list_repo_files("somebody/rows", repo_type="dataset")) == ["train/0.jsonl"]
    tree = list(huggingface_hub.HfApi().list_repo_tree("somebody/rows", repo_type="dataset"))
    assert [type(one).__name__ for one in tree] == ["RepoFolder"]
    whole = list(huggingface_hub.HfApi().list_repo_tree("somebody/rows", recursive=True, repo_type="dataset"))
    assert [one.path for one in whole] == ["train", "train/0.jsonl"]
    assert [one.path for one in hf_api.get_paths_info(NAME, ["config.json", "no.json"])] == ["config.json"]


def test_it_and_its_revisions_are_there(missed: list[MissingInput]) -> None:
    assert huggingface_hub.repo_exists(NAME)
    assert huggingface_hub.revision_exists(NAME, "main")
    assert huggingface_hub.file_exists(NAME, "config.json")
    assert not huggingface_hub.file_exists(NAME, "adapter_config.json")


@pytest.mark.parametrize("ask", ["model_info", "list_repo_files", "repo_info"])
def test_a_name_that_was_not_prepared_is_refused_and_noted(missed: list[MissingInput], ask: str) -> None:
    with pytest.raises(Exception, match=r"[Oo]ffline|network"):
        getattr(huggingface_hub, ask)("somebody/model")
    assert missed == [MissingInput("model", "somebody/model")]


def test_a_file_that_is_asked_for_in_vain_is_named(missed: list[MissingInput]) -> None:
    with pytest.raises(Exception, match=r"[Oo]ffline|network|cache") as raised:
        huggingface_hub.hf_hub_download(repo_id="somebody/vocoder", filename="config.yaml")
    assert questions.attached_hub_request(raised.value) == ("somebody/vocoder", "config.yaml")
    assert missed == [MissingInput("model", "somebody/vocoder", files=("config.yaml",))]


def test_a_whole_repository_that_is_asked_for_in_vain_is_named(missed: list[MissingInput]) -> None:
    with pytest.raises(Exception, match=r"[Oo]ffline|network|cache|disabled") as raised:
        huggingface_hub.snapshot_download(repo_id="somebody/painter", allow_patterns="*.json")
    assert questions.attached_hub_request(raised.value) == ("somebody/painter", "")
    assert missed == [MissingInput("model", "somebody/painter")]
