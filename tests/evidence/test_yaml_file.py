"""YAML as PyYAML reads it, with places, and edits that leave the rest as it is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gonogo.evidence.config.accelerate import is_accelerate_config, read_accelerate_config
from gonogo.evidence.document.yaml_file import YamlFile, read_yaml
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Edit

CONFIG = """\
# made by hand
compute_environment: LOCAL_MACHINE
deepspeed_config:
  gradient_accumulation_steps: 1
  zero3_init_flag: true   # needed
  zero_stage: 3
distributed_type: DEEPSPEED
num_processes: 8
"""


def config(text: str | bytes) -> YamlFile:
    data = text if isinstance(text, bytes) else text.encode()
    return read_yaml(SourceFile("a.yaml", data))


def applied(text: str, edit: Edit) -> str:
    data = text.encode()
    assert data[edit.start : edit.end] == edit.before
    return (data[: edit.start] + edit.after + data[edit.end :]).decode()


@pytest.mark.parametrize(
    "text",
    [
        CONFIG,
        "a: 1\nb: 1e-5\nc: 1.0e-5\nd: 1.0e5\ne: on\nf: 'on'\ng: ~\nh:\ni: 0x1F\nj: 010\n",
        "k: 1_000\nl: .5\nm: -3\nn: .inf\n",
        "a: [1, two, {b: 3}]\nc: {d: [e, f]}\n",
        "a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2\n",
        "a: !!str 1\nb: !!int '3'\nc: |\n  text\n  more\nd: >-\n  folded\n  on\n",
        "'quoted key': 1\n\"é\": 中文\n",
        "- a\n- b\n",
        "",
        "a: 2024-01-01x\nb: 1.2.3\nc: '1'\nd: +1\ne: 1.\nf: _1\ng: 0b11\nh: 08\n",
    ],
)
def test_values_are_what_pyyaml_makes_of_them(text: str) -> None:
    expected = yaml.safe_load(text)
    found = config(text)
    assert found.root.field.value == (expected if isinstance(expected, dict) else {})
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert found.get(name).value == value
            assert type(found.get(name).value) is type(value)


def test_places() -> None:
    found = config("\ufeff# 注释\na: 一 # x\nb:\n  c: [1, 2]\n")
    for keys, text, line in [(("a",), "一", 2), (("b", "c"), "[1, 2]", 4)]:
        place = found.get(*keys).place
        assert place is not None
        assert (place.text, place.line) == (text, line)
    place = found.key_place("b", "c")
    assert place is not None
    assert place.text == "c"
    assert [keys for keys, _ in found.entries()] == [("a",), ("b",), ("b", "c")]


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("a: 1\na: 2\n", "duplicate-key", 2),
        ("a: [1\nb: 2\n", "syntax", 2),
        ("a: 1\n\tb: 2\n", "syntax", 2),
        ("- 1\n", "not-an-object", 1),
        ("a: 1\n---\nb: 2\n", "documents", 2),
        (b"a: \xff\n", "encoding", 1),
        ("a: \x00\n", "syntax", 1),
    ],
)
def test_problems(text: str | bytes, kind: str, line: int) -> None:
    found = config(text)
    (problem,) = found.problems
    assert problem.kind == kind
    assert problem.place.line == line
    assert problem.message.en
    assert problem.message.zh


def test_the_last_of_two_counts() -> None:
    assert config("a: 1\na: 2\n").get("a").value == 2


def test_what_stands_before_a_fault_is_read() -> None:
    found = config("a: 1\nb: {c: 2\nd: [\n")
    assert found.get("a").value == 1
    assert not found.is_readable
    assert found.get("z").unknown


def test_a_bomb_stays_small() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    lines += ["m0: &m0 {k: 1}"] + [f"m{n}: &m{n} {{x: *m{n - 1}, y: *m{n - 1}}}" for n in range(1, 40)]
    found = config("\n".join(lines))
    assert sum(1 for _ in found.entries()) < 200_000
    assert found.get("m39").unknown


def test_deep_nesting() -> None:
    for text in ("[" * 100_000, "{a: " * 5_000, "\n".join(" " * n + "a:" for n in range(2000)), "- " * 3000):
        assert isinstance(config(text).problems, tuple)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (("num_processes",), CONFIG.replace("num_processes: 8\n", "")),
        (("deepspeed_config", "zero3_init_flag"), CONFIG.replace("  zero3_init_flag: true   # needed\n", "")),
        (("deepspeed_config", "zero_stage"), CONFIG.replace("  zero_stage: 3\n", "")),
        (("deepspeed_config",), "# made by hand\n" + CONFIG.partition("hand\n")[2].partition("deepspeed_config")[0]
         + "distributed_type: DEEPSPEED\nnum_processes: 8\n"),
    ],
)  # fmt: skip
def test_removing(keys: tuple[str, ...], expected: str) -> None:
    changed = applied(CONFIG, config(CONFIG).removing(*keys))
    assert changed == expected
    assert config(changed).get(*keys).absent


@pytest.mark.parametrize(
    ("text", "keys", "expected"),
    [
        ("a: {b: 1, c: 2, d: 3}\n", ("a", "b"), "a: {c: 2, d: 3}\n"),
        ("a: {b: 1, c: 2, d: 3}\n", ("a", "d"), "a: {b: 1, c: 2}\n"),
        ("a: {b: 1}\n", ("a", "b"), "a: {}\n"),
        ("a:\n  b: 1\nc: 2\n", ("a", "b"), "a:\n  {}\nc: 2\n"),
        ("a: |\n  text\n  more\nb: 1\n", ("a",), "b: 1\n"),
        ("a: 1\nb:", ("b",), "a: 1\n"),
        ("a:\nb: 1\n", ("a",), "b: 1\n"),
    ],
)
def test_removing_in_other_layouts(text: str, keys: tuple[str, ...], expected: str) -> None:
    assert applied(text, config(text).removing(*keys)) == expected


def test_removing_what_has_no_place() -> None:
    found = config("a: &x {b: 1}\nc:\n  <<: *x\n")
    with pytest.raises(KeyError):
        found.removing("c", "b")
    with pytest.raises(KeyError):
        found.removing("z")


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("num_processes",), 4),
        (("deepspeed_config", "zero3_init_flag"), False),
        (("new",), "text"),
        (("deepspeed_config", "new"), "a: b # c"),
        (("one", "two", "three"), 1e-05),
        (("deepspeed_config",), {"a": [1, None]}),
        (("new",), "on"),
        (("new",), "1e-5"),
        (("new",), ""),
    ],
)
@pytest.mark.parametrize(
    "text", [CONFIG, CONFIG.rstrip("\n"), CONFIG.replace("\n", "\r\n"), "{}", "num_processes:\n", ""]
)
def test_inserting(text: str, keys: tuple[str, ...], value: Any) -> None:
    changed = applied(text, config(text).inserting(*keys, value=value))
    loaded = yaml.safe_load(changed)
    found = loaded
    for key in keys:
        found = found[key]
    assert found == value
    before = yaml.safe_load(text) or {}
    untouched = {name: inner for name, inner in before.items() if name != keys[0]}
    assert {name: inner for name, inner in loaded.items() if name in untouched} == untouched
    for comment in ("# made by hand", "# needed"):
        assert (comment in changed) == (comment in text) or keys == ("deepspeed_config",)


def test_inserting_keeps_to_its_neighbours() -> None:
    changed = applied(CONFIG, config(CONFIG).inserting("deepspeed_config", "offload_optimizer_device", value="cpu"))
    assert changed == CONFIG.replace("  zero_stage: 3\n", "  zero_stage: 3\n  offload_optimizer_device: cpu\n")


def test_accelerates_config() -> None:
    found = read_accelerate_config(SourceFile("a.yaml", CONFIG.encode()))
    assert found.distributed_type.value == "DEEPSPEED"
    assert found.enables_deepspeed
    assert is_accelerate_config(found)
    assert not is_accelerate_config(config("a: 1\n"))


_PIECES = [
    "a:",
    " ",
    "\n",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "'",
    '"',
    "&x",
    "*x",
    "|",
    ">",
    "#",
    "!!int",
    "1",
    "\t",
    "?",
    "<<:",
]


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=200) | st.lists(st.sampled_from(_PIECES), max_size=40).map(lambda parts: "".join(parts).encode())
)
def test_any_bytes(data: bytes) -> None:
    found = config(data)
    for keys, field in found.entries():
        assert field.known or field.reason is not None
        assert found.get(*keys) is not None
    for name in found.top_level_keys():
        place = found.key_place(name)
        assert place is None or 0 <= place.start <= place.end <= len(data)
        try:
            edits = [found.removing(name), found.replacing(name, value=1)]
        except KeyError:
            continue
        assert all(data[edit.start : edit.end] == edit.before for edit in edits)
