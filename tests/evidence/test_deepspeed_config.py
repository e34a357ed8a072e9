"""DeepSpeed configs: values, what is derived from them, changes of the file, presets."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from gonogo.evidence.config.deepspeed import (
    DeepSpeedConfig,
    deepspeed_config_from_tree,
    is_deepspeed_config,
    read_deepspeed_config,
)
from gonogo.evidence.config.deepspeed_keys import find_key_info, is_comment_key
from gonogo.evidence.config.deepspeed_presets import _preset_folders, preset_config
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import SourceFile
from gonogo.evidence.tables import TABLES
from gonogo.finding import Edit

CONFIG = """{
    // how it is partitioned
    "train_batch_size": "auto",
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": true}, // host memory
        "reduce_bucket_size": 5e8,
        "overlap_comm": true
    },
    "bf16": {"enabled": true},
    "fp16": {}
}
"""


def read(text: str | bytes) -> DeepSpeedConfig:
    return read_deepspeed_config(SourceFile("ds.json", text if isinstance(text, bytes) else text.encode()))


def applied(text: str, edit: Edit) -> str:
    data = text.encode()
    assert data[edit.start : edit.end] == edit.before
    return (data[: edit.start] + edit.after + data[edit.end :]).decode()


def value_of(text: str) -> Any:
    return read(text).raw().value


def test_values_with_their_places() -> None:
    config = read(CONFIG)
    stage = config.get("zero_optimization", "stage")
    assert (stage.value, stage.place and stage.place.line) == (3, 5)
    key = config.key_place("zero_optimization", "overlap_comm")
    assert key is not None
    assert key.text == '"overlap_comm"'
    assert config.get("zero_optimization", "nothing").absent
    assert config.get("bf16", "enabled", "deeper").absent
    assert config.get("nothing", "at", "all").absent
    assert [problem.kind for problem in config.problems] == ["comment", "comment"]


def test_entries_name_every_value() -> None:
    paths = [".".join(keys) for keys, _ in read(CONFIG).entries()]
    assert paths == [
        *("train_batch_size", "zero_optimization", "zero_optimization.stage", "zero_optimization.offload_optimizer"),
        *("zero_optimization.offload_optimizer.device", "zero_optimization.offload_optimizer.pin_memory"),
        *("zero_optimization.reduce_bucket_size", "zero_optimization.overlap_comm", "bf16", "bf16.enabled", "fp16"),
    ]


@pytest.mark.parametrize(
    ("zero", "stage"),
    [
        ('{"zero_optimization": {"stage": 2}}', 2),
        ('{"zero_optimization": {"stage": "3"}}', 3),
        ('{"zero_optimization": {}}', 0),
        ('{"zero_optimization": true}', 1),
        ('{"zero_optimization": false}', 0),
        ("{}", 0),
        ('{"zero_optimization": {"stage": "auto"}}', None),
        ('{"zero_optimization": {"stage": ${STAGE}}}', None),
        ('{"zero_optimization": {"stage": 7}}', None),
        ('{"zero_optimization": ${ZERO}}', None),
        ('{"zero_optimization": [1]}', None),
        ("", None),
    ],
)
def test_zero_stage(zero: str, stage: int | None) -> None:
    assert read(zero).zero_stage == stage


@pytest.mark.parametrize(
    ("inner", "optimizer", "param"),
    [
        ('"offload_optimizer": {"device": "cpu"}', "cpu", "none"),
        ('"offload_param": {"device": "nvme", "nvme_path": "/x"}', "none", "nvme"),
        ('"offload_optimizer": {"device": "none"}', "none", "none"),
        ('"offload_optimizer": {"pin_memory": true}', "none", "none"),
        ('"cpu_offload": true', "cpu", "none"),
        ('"cpu_offload": false, "cpu_offload_param": true', "none", "cpu"),
        ('"cpu_offload_params": true', "none", "cpu"),
        ('"offload_optimizer": null', "none", "none"),
        ('"offload_optimizer": {"device": "auto"}', None, "none"),
        ('"offload_optimizer": {"device": "gpu"}', None, "none"),
    ],
)
def test_offload(inner: str, optimizer: str | None, param: str) -> None:
    config = read(f'{{"zero_optimization": {{"stage": 3, {inner}}}}}')
    assert (config.offload_target("optimizer").value, config.offload_target("param").value) == (optimizer, param)


def test_what_cannot_be_read_is_unknown() -> None:
    config = read("[1]")
    assert not config.readable
    assert config.get("zero_optimization").unknown
    assert config.offload_target("optimizer").unknown
    assert list(config.entries()) == []


def test_replacing_changes_only_the_value() -> None:
    config = read(CONFIG)
    after = applied(CONFIG, config.replacing("zero_optimization", "stage", value=2))
    assert after == CONFIG.replace('"stage": 3', '"stage": 2')
    with pytest.raises(KeyError):
        config.replacing("zero_optimization", "nothing", value=1)


@pytest.mark.parametrize(
    ("keys", "gone", "left"),
    [
        (("zero_optimization", "overlap_comm"), ',\n        "overlap_comm": true', ""),
        (
            ("zero_optimization", "offload_optimizer"),
            '        "offload_optimizer": {"device": "cpu", "pin_memory": true}, // host memory\n',
            "",
        ),
        (("zero_optimization", "offload_optimizer", "device"), '"device": "cpu", ', ""),
        (("zero_optimization", "offload_optimizer", "pin_memory"), ', "pin_memory": true', ""),
        (("bf16", "enabled"), '{"enabled": true}', "{}"),
        (("fp16",), ',\n    "fp16": {}', ""),
        (("train_batch_size",), '    "train_batch_size": "auto",\n', ""),
    ],
)
def test_removing_takes_comma_and_line(keys: tuple[str, ...], gone: str, left: str) -> None:
    after = applied(CONFIG, read(CONFIG).removing(*keys))
    assert after == CONFIG.replace(gone, left)
    with pytest.raises(KeyError):
        read(after).removing(*keys)


def test_inserting_is_indented_as_its_neighbours() -> None:
    config = read(CONFIG)
    after = applied(CONFIG, config.inserting("zero_optimization", "contiguous_gradients", value=True))
    expected = '"overlap_comm": true,\n        "contiguous_gradients": true\n'
    assert after == CONFIG.replace('"overlap_comm": true\n', expected)
    after = applied(CONFIG, config.inserting("zero_optimization", "offload_param", value={"device": "cpu"}))
    assert '        "offload_param": {\n            "device": "cpu"\n        }\n    },' in after
    after = applied(CONFIG, config.inserting("zero_optimization", "offload_optimizer", "ratio", value=0.5))
    assert '"pin_memory": true, "ratio": 0.5}, // host memory' in after
    assert '"fp16": {"enabled": false}' in applied(CONFIG, config.inserting("fp16", "enabled", value=False))
    after = applied(CONFIG, config.inserting("optimizer", "params", "lr", value="auto"))
    assert value_of(after)["optimizer"] == {"params": {"lr": "auto"}}
    assert '    "optimizer": {\n        "params": {\n            "lr": "auto"\n        }\n    }\n}' in after


def test_inserting_what_is_there_replaces_it() -> None:
    after = applied(CONFIG, read(CONFIG).inserting("zero_optimization", "stage", value=1))
    assert after == CONFIG.replace('"stage": 3', '"stage": 1')
    with pytest.raises(KeyError):
        read(CONFIG).inserting("train_batch_size", "inner", value=1)
    with pytest.raises(KeyError):
        read("").inserting("a", value=1)


def test_edits_keep_line_ends_comments_and_marks() -> None:
    windows = '\ufeff{\r\n\t"a": 1, // one\r\n\t"b": 2 // two\r\n}\r\n'
    config = read(windows)
    added = applied(windows, config.inserting("c", value=3))
    assert added == '\ufeff{\r\n\t"a": 1, // one\r\n\t"b": 2, // two\r\n\t"c": 3\r\n}\r\n'
    assert applied(windows, config.removing("a")) == '\ufeff{\r\n\t"b": 2 // two\r\n}\r\n'
    assert applied(windows, config.removing("b")) == '\ufeff{\r\n\t"a": 1 // one\r\n}\r\n'


def test_empty_objects_are_filled() -> None:
    assert applied("{}\n", read("{}\n").inserting("a", value=1)) == '{\n  "a": 1\n}\n'
    assert value_of(applied("{\n}\n", read("{\n}\n").inserting("a", "b", value=1))) == {"a": {"b": 1}}


def test_edits_of_a_file_with_faults_keep_it_readable() -> None:
    broken = "{'a': 1,\n 'b': {'c': True,},\n}"
    config = read(broken)
    assert value_of(applied(broken, config.inserting("b", "d", value=2))) == {"a": 1, "b": {"c": True, "d": 2}}
    assert value_of(applied(broken, config.removing("b"))) == {"a": 1}
    assert value_of(applied(broken, config.replacing("b", "c", value=False))) == {"a": 1, "b": {"c": False}}


_NAMES = st.sampled_from(["a", "b", "zero", "é", "中 文"])
_OBJECTS = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=3),
    lambda inner: st.dictionaries(_NAMES, inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=12,
)


@given(st.dictionaries(_NAMES, _OBJECTS, min_size=1, max_size=4), st.sampled_from([None, 2, "\t"]), st.data())
def test_edits_do_what_they_say(value: dict[str, Any], indent: int | str | None, data: st.DataObject) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    config = read(text)
    keys = data.draw(st.sampled_from([path for path, _ in config.entries()]))
    changed: dict[str, Any] = json.loads(text)
    parent = changed
    for key in keys[:-1]:
        parent = parent[key]
    parent[keys[-1]] = {"new": [1]}
    assert json.loads(applied(text, config.replacing(*keys, value={"new": [1]}))) == changed
    del parent[keys[-1]]
    assert json.loads(applied(text, config.removing(*keys))) == changed
    parent[keys[-1]] = json.loads(text)[keys[0]] if len(keys) == 1 else 0
    if isinstance(config.raw(*keys).value, dict):
        inserted = json.loads(applied(text, config.inserting(*keys, "fresh", "key", value="x")))
        for key in keys:
            inserted = inserted[key]
        assert inserted["fresh"] == {"key": "x"}


@given(st.binary(max_size=300))
def test_arbitrary_bytes_give_an_answer(data: bytes) -> None:
    config = read(data)
    assert config.zero_stage in (None, 0, 1, 2, 3)
    config.offload_target("optimizer")
    is_deepspeed_config(SourceFile("x.json", data))
    for keys, field in config.entries():
        field.span()
        try:
            config.removing(*keys)
            config.inserting(*keys, "x", value=1)
        except KeyError:
            pass


def test_other_sources_make_a_config_too() -> None:
    config = deepspeed_config_from_tree({"zero_optimization": {"stage": 2}}, name="in train.py")
    assert (config.zero_stage, config.get("zero_optimization", "stage").place) == (2, None)
    place = SourceFile("train.py", b"stage = 3").place(8, 9)
    fields = {"zero_optimization": {"stage": Field(3, place=place), "overlap_comm": Field.not_known()}}
    placed = deepspeed_config_from_tree(fields, name="in train.py")
    assert placed.zero_stage == 3
    assert placed.get("zero_optimization", "stage").place == place
    assert placed.get("zero_optimization", "overlap_comm").unknown
    with pytest.raises(KeyError):
        config.removing("zero_optimization")
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert deepspeed_config_from_tree(deep, name="deep").zero_stage == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"zero_optimization": {"stage": 2}}', True),
        ('{"train_micro_batch_size_per_gpu": 1}', True),
        ('{"fp16": {"enabled": true}, "optimizer": {"type": "Adam"}, "train_batch_size": 8}', True),
        ('{"fp16": true, "optimizer": "adamw"}', False),
        (
            '{"bf16": true, "fp16": false, "gradient_accumulation_steps": 4, "output_dir": "out", '
            '"optim": "adamw_torch", '
            '"learning_rate": 1e-5, "max_steps": 10}',
            False,
        ),
        ('{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "model_type": "llama"}', False),
        ('["zero_optimization"]', False),
        ("", False),
    ],
)
def test_recognises_its_own(text: str, expected: bool) -> None:
    assert is_deepspeed_config(SourceFile("x.json", text.encode())) is expected


def test_presets_by_name_and_release() -> None:
    newest = preset_config("ms-swift", "zero3_offload")
    assert newest is not None
    assert (newest.name, newest.zero_stage, newest.offload_target("param").value) == (
        "ms-swift's zero3_offload",
        3,
        "cpu",
    )
    assert newest.preset == "zero3_offload"
    older = preset_config("ms-swift", "zero3", version=Version("3.0.3"))
    assert older is not None
    assert older.raw("zero_optimization", "overlap_comm").value is True
    named = preset_config("ms-swift", "default-zero2")
    assert named is not None
    assert named.zero_stage == 2
    by_path = preset_config("llamafactory", "examples/deepspeed/ds_z3_config.json")
    assert by_path is not None
    assert by_path.zero_stage == 3
    with pytest.raises(KeyError):
        newest.replacing("zero_optimization", "stage", value=2)
    for framework, name in (
        ("ms-swift", "mine.json"),
        ("ms-swift", "../zero3"),
        ("llamafactory", "x"),
        ("trl", "zero3"),
    ):
        assert preset_config(framework, name) is None
    assert preset_config("ms-swift", "zero3", version=Version("1.0")) is None


@pytest.mark.parametrize("framework", ["ms-swift", "llamafactory"])
def test_presets_are_faultless(framework: str) -> None:
    names = [path.stem for path in _preset_folders(framework)[-1].glob("*.json")]
    assert len(names) >= 6
    for name in names:
        config = preset_config(framework, name)
        assert config is not None
        assert config.problems == ()
        unknown = {
            ".".join(keys)
            for keys, _ in config.entries()
            if find_key_info(keys) is None and not is_comment_key(keys[-1])
        }
        # LLaMA-Factory's fp8 example has these, which DeepSpeed passes over.
        assert {one for one in unknown if not one.startswith(("comms_config", "monitor_config"))} == set()


def test_import_is_light() -> None:
    code = (
        "import sys, gonogo.evidence.config.deepspeed, gonogo.evidence.config.deepspeed_keys;"
        "print([name for name in ('torch', 'tree_sitter', 'yaml', 're2', 'packaging') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert ran.stdout.strip() == "[]"


def test_data_is_shipped() -> None:
    folder = TABLES / "presets"
    assert (folder / "README.md").is_file()
