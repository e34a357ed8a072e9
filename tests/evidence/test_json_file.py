"""JSON with places: what is read, what is told of, on anything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.evidence.document.json_file import read_json, repairs
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Edit

CONFIG = b"""{
  "train_batch_size": "auto",
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true}},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "betas": [0.9, 0.95]}}
}
"""
NOISE = [b",", b"{", b"}", b'"', b"'", b"\n", b"#", b"//", b"True", b"\xff", b":", b"]"]


def applied(data: bytes, *edits: Edit) -> bytes:
    for edit in sorted(edits, key=lambda one: one.start, reverse=True):
        assert data[edit.start : edit.end] == edit.before
        data = data[: edit.start] + edit.after + data[edit.end :]
    return data


def value_of(text: str | bytes) -> Any:
    file = read_json(SourceFile("ds.json", text if isinstance(text, bytes) else text.encode()))
    return file.root.field.value if file.root is not None else None


def kinds(text: str | bytes) -> list[str]:
    file = read_json(SourceFile("ds.json", text if isinstance(text, bytes) else text.encode()))
    return [problem.kind for problem in file.problems]


@pytest.mark.parametrize(
    ("text", "value", "problems"),
    [
        ('{"a": 1, "b": [1, {"c": null}]}', {"a": 1, "b": [1, {"c": None}]}, []),
        ('{"a": 5e8, "b": -0.5, "c": 12}', {"a": 5e8, "b": -0.5, "c": 12}, []),
        ('{"a": 1, // why\n /* and */ "b": 2 # too\n}', {"a": 1, "b": 2}, ["comment"] * 3),
        ('{"a": [1, 2,], "b": {"c": 1,},}', {"a": [1, 2], "b": {"c": 1}}, ["trailing-comma"] * 3),
        ("{'a': 'it\\'s \"x\"'}", {"a": 'it\'s "x"'}, ["single-quotes"] * 2),
        ('{"a": True, "b": None, "c": False}', {"a": True, "b": None, "c": False}, ["python-literal"] * 3),
        ('{"a": 1, "b": 2, "a": 3}', {"a": 3, "b": 2}, ["duplicate-key"]),
        ('{"a": NaN}', None, ["not-a-number"]),
        ('{"a": 1 "b": 2\n"c": {} "d": [1 2]}', {"a": 1, "b": 2, "c": {}, "d": [1, 2]}, ["missing-comma"] * 4),
        ('{"a" 1, "b": 2}', {"a": 1, "b": 2}, ["missing-colon"]),
        ('{"a": , "b": 2}', {"a": None, "b": 2}, ["missing-value"]),
        ('{a: auto, "b": cpu}', {"a": "auto", "b": "cpu"}, ["unquoted-key", "unquoted", "unquoted"]),
        ('{"a": 1_000, "b": .5, "c": +2, "d": 0x10}', {"a": 1000, "b": 0.5, "c": 2, "d": 16}, ["number"] * 4),
        ('{"a": {"b": 1}', {"a": {"b": 1}}, ["unclosed"]),
        ('{"a": "cpu,\n "b": 2}', {"a": "cpu", "b": 2}, ["unclosed-string", "missing-comma"]),
        ('{"a": 1}}', {"a": 1}, ["extra"]),
        ('{"a": [1, 2}', {"a": [1, 2]}, ["unclosed"]),
        ('{"a": 1]}', {"a": 1}, ["mismatched"]),
        ('{"a": ${X:-1}, "b": {{ b }}, "c": <c>}', {"a": "${X:-1}", "b": "{{ b }}", "c": "<c>"}, ["template"] * 3),
        ('{"a": "x\ty", "b": "\\x"}', {"a": "x\ty", "b": "\\x"}, ["control-character", "escape"]),
        ("", None, ["empty"]),
        ("[1]", None, ["not-an-object"]),
        ("ds_config = {", None, ["not-an-object"]),
        (b"\xef\xbb\xbf{}", {}, ["byte-order-mark"]),
        (b'{"a": "\xff"}', {"a": "\ufffd"}, ["encoding"]),
        ('{"a": 1}'.encode("utf-16"), None, ["encoding"]),
    ],
)
def test_reads_what_is_no_json(text: str | bytes, value: Any, problems: list[str]) -> None:
    if problems != ["not-a-number"]:
        assert value_of(text) == value
    assert sorted(kinds(text)) == sorted(problems)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, // c\n "b": 2 # d\n}',
        '{"a": [1, 2,], "b": {"c": 1,},}',
        "{'a': 'x', b: 'y'}",
        '{"a": 1\n"b": 2}',
        '{"a": 1 "b": 2}',
        '{"a": [1\n2]}',
        '{"a": [1 2]}',
        '\ufeff{"a": 1}',
        '{"a": True, "b": 1}',
        '{"a": True}',
        '{"a": auto, "b": 1}',
        '{"a": NaN}',
        '{"a": "x\ty"}',
        '{"a": "\\q"}',
        '{"a": .5, "b": 1_000}',
        '{"a": "x\n}',
        '{"a": 1',
        '{"a": 1}}',
        '{"a" 1}',
        "",
        '{"a": ${X}}',
    ],
)
def test_tells_what_deepspeeds_own_reader_accepts(text: str) -> None:
    hjson = pytest.importorskip("hjson")
    file = read_json(SourceFile("ds.json", text.encode()))
    try:
        value = json.loads(json.dumps(hjson.loads(text)))
    except hjson.HjsonDecodeError:
        value = None
    ours = file.root.field.value if file.root is not None else None
    assert all(problem.hjson_accepts for problem in file.problems) == (value is not None and value == ours)


def test_places_are_the_files_own() -> None:
    source = SourceFile("ds.json", '{"é": "中文", "b": {"c": 12}}'.encode())
    root = read_json(source).root
    assert root is not None
    inner = root.member(("b", "c"))
    assert inner is not None
    assert inner.key_place is not None
    assert inner.node.field.place is not None
    assert (inner.key_place.text, inner.node.field.place.text) == ('"c"', "12")
    whole = root.find(("b",))
    assert whole is not None
    assert whole.field.place is not None
    assert whole.field.place.text == '{"c": 12}'


def test_repairs_make_it_json() -> None:
    text = "{'a': True, // no\n \"b\": [1, 2,],\n c: 'x',\n}".replace("// no", "")
    source = SourceFile("ds.json", text.encode())
    repaired = applied(source.data, *repairs(read_json(source).problems))
    assert json.loads(repaired) == {"a": True, "b": [1, 2], "c": "x"}


def test_deep_nesting_and_long_files_are_no_harm() -> None:
    assert "nesting" in kinds('{"a":' * 50_000)
    assert "nesting" in kinds("[" * 50_000 + "]" * 50_000)
    assert "too-long" in kinds("{" + '"a":1,' * 60_000 + "}")
    for text in ("/*" * 50_000, "{{" * 50_000, "${" * 50_000, "'" * 50_001, '"\\' * 50_001):
        kinds(text)


def python_reads(data: bytes) -> Any:
    """What transformers would read, or None."""
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def agrees_with_python(data: bytes) -> None:
    """Where Python reads an object we tell of no error and read the same, and else we tell of one."""
    file = read_json(SourceFile("ds.json", data))
    value = python_reads(data)
    error = next((problem for problem in file.problems if not problem.json_accepts), None)
    if value is None:
        assert error is not None
        return
    assert error is None or error.kind in ("nesting", "too-long", "number")
    assert file.root is not None
    if error is None and not any(problem.kind == "not-a-number" for problem in file.problems):
        expected = json.dumps(value).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        if "\\ud" not in expected:
            assert json.dumps(file.root.field.value) == expected


@given(st.binary(max_size=200))
def test_arbitrary_bytes(data: bytes) -> None:
    agrees_with_python(data)


@given(st.text(alphabet="{}[],:\"'\\ \n/*#ab1-+.eE$<>tTrRuUnNlfFsN", max_size=60))
def test_arbitrary_almost_json(text: str) -> None:
    agrees_with_python(text.encode())


@given(st.data())
def test_mutated_config(data: st.DataObject) -> None:
    mutated = bytearray(CONFIG)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        kind = data.draw(st.sampled_from(["delete", "insert", "replace", "cut"]))
        new = data.draw(
            st.sampled_from([b",", b"{", b"}", b'"', b"'", b"\n", b"#", b"//", b"True", b"\xff", b":", b"]"])
        )
        if kind == "cut":
            del mutated[at:]
            break
        mutated[at : at + (kind != "insert")] = b"" if kind == "delete" else new
        if not mutated:
            break
    agrees_with_python(bytes(mutated))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    ),
    st.sampled_from([None, 2]),
)
def test_reads_what_json_writes(value: Any, indent: int | None) -> None:
    data = json.dumps({"it": value}, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
    assert kinds(data) == []
    agrees_with_python(data)
