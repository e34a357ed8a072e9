"""Training arguments from options, a framework's YAML and the script, the strongest first."""

from __future__ import annotations

from pathlib import Path

from gonogo.evidence.field import Field
from gonogo.evidence.launch.reading import read_launches
from gonogo.evidence.source_file import SourceFile
from gonogo.evidence.training_arguments import Arguments, read_arguments


def arguments(folder: Path, text: str, script: dict[str, Field] | None = None) -> Arguments:
    path = folder / "launch.sh"
    path.write_text(text, encoding="utf-8")
    return read_arguments(read_launches(SourceFile.read(path))[-1], script)


def test_options(tmp_path: Path) -> None:
    found = arguments(tmp_path, "torchrun t.py --bf16 --fp16 false --learning_rate 1e-5 --no_remove_unused_columns\n")
    assert found.get("bf16").truth is True
    assert found.get("fp16").truth is False
    assert found.get("learning_rate").number == 1e-5
    assert found.get("remove_unused_columns").truth is False
    assert found.get("max_steps").absent
    assert found.complete
    assert found.source_of("bf16") == "option"
    assert not found.has("max_steps")


def test_a_frameworks_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "### 模型\nbf16: true\nlearning_rate: 1.0e-4\ndeepspeed: ds.json\nlora_target: all\n"
    )
    found = arguments(tmp_path, "llamafactory-cli train a.yaml learning_rate=1e-5\n")
    assert found.get("bf16").value is True
    assert found.get("learning_rate").value == "1e-5"
    assert found.source_of("learning_rate") == "option"
    assert found.source_of("bf16") == "file"
    place = found.get("bf16").place
    assert place is not None
    assert (place.line, place.text) == (2, "true")
    assert found.framework == "llamafactory"


def test_a_scripts_only_argument(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"bf16": true, "per_device_train_batch_size": 4}')
    found = arguments(tmp_path, "torchrun --nproc_per_node 2 t.py c.json\n")
    assert found.get("per_device_train_batch_size").value == 4
    assert found.get("fp16").absent


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    found = arguments(tmp_path, "llamafactory-cli train elsewhere.yaml\n")
    assert not found.complete
    assert found.get("bf16").unknown


def test_the_scripts_own(tmp_path: Path) -> None:
    given = {"bf16": Field.of(True), "fp16": Field.of(True), "seed": Field.missing()}
    found = arguments(tmp_path, "torchrun t.py --fp16 False\n", given)
    assert found.get("fp16").truth is False
    assert found.get("bf16").value is True
    assert found.source_of("bf16") == "script"
    assert set(found.names()) == {"bf16", "fp16"}


def test_nothing_known() -> None:
    found = Arguments.unknown()
    assert found.get("bf16").unknown
    assert found.get("bf16").reason is not None
    assert read_arguments(None, {"bf16": Field.of(True)}).get("bf16").value is True
