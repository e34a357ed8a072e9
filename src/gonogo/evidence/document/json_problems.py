"""What is wrong with a file that should be JSON, and which readers mind.

Python's ``json`` reads a config for transformers and accelerate; DeepSpeed itself reads it with Hjson, which allows
comments and trailing commas, and refuses duplicate keys, which ``json`` does not.
"""

from __future__ import annotations

import msgspec

from gonogo.evidence.source_file import Place
from gonogo.finding import Edit, Text


class ConfigProblem(msgspec.Struct, frozen=True):
    """A fault of a config's text. ``repair`` makes it JSON where one change is enough."""

    kind: str
    place: Place
    message: Text
    json_accepts: bool = False
    """Whether Python's ``json`` (transformers, accelerate) reads on all the same."""
    hjson_accepts: bool = False
    """Whether Hjson (DeepSpeed's own reader) reads it, and reads what is meant."""
    repair: Edit | None = None


TEMPLATE_REASON = Text("{text} is filled in by another program before the run", "{text} 会在运行前由其他程序填充")
UNREADABLE_REASON = Text("can't read its value: {text}", "无法读取其值：{text}")

_READ_BY_HJSON = frozenset({"byte-order-mark", "comment", "trailing-comma", "single-quotes", "unquoted-key"})
_READ_BY_JSON = frozenset({"duplicate-key", "not-a-number"})

_MESSAGES = {
    "encoding": Text("the file is not UTF-8 text; save it as UTF-8", "文件不是 UTF-8 文本；请另存为 UTF-8"),
    "byte-order-mark": Text(
        "the file starts with a byte-order mark (BOM), which Python's json rejects",
        "文件以字节顺序标记（BOM）开头，Python 的 json 会拒绝读取",
    ),
    "empty": Text("the file is empty", "文件为空"),
    "not-an-object": Text(
        "a DeepSpeed config is one JSON object: {{ … }}", "DeepSpeed 配置必须是一个 JSON 对象：{{ … }}"
    ),
    "comment": Text("JSON doesn't allow comments", "JSON 不支持注释"),
    "trailing-comma": Text("JSON doesn't allow a trailing comma", "JSON 不允许在最后一项之后写逗号"),
    "duplicate-key": Text(
        '"{text}" stands twice in this object (first on line {line}); DeepSpeed refuses that, and json takes the last',
        "“{text}”在此对象中出现两次（首次在第 {line} 行）；DeepSpeed 会报错，json 则只取最后一个",
    ),
    "single-quotes": Text("JSON writes strings in double quotes", "JSON 的字符串必须用双引号"),
    "unquoted-key": Text("JSON writes keys in double quotes: {text}", "JSON 的键必须用双引号：{text}"),
    "unquoted": Text("JSON writes strings in double quotes: {text}", "JSON 的字符串必须用双引号：{text}"),
    "python-literal": Text(
        "{text} is Python; JSON writes true, false and null", "{text} 是 Python 的写法；JSON 用 true、false、null"
    ),
    "not-a-number": Text(
        "{text} is not valid JSON, though Python's json accepts it", "{text} 不是合法 JSON，但 Python 的 json 能读"
    ),
    "number": Text("not a valid JSON number: {text}", "不是有效的 JSON 数字：{text}"),
    "template": Text("{text} is a placeholder that another program must fill in", "{text} 是占位符，须由其他程序填充"),
    "escape": Text("invalid escape sequence: {text}", "无效的转义序列：{text}"),
    "control-character": Text(
        "a tab or control character within a string; JSON writes \\t", "字符串中含有制表符或控制字符；JSON 应写作 \\t"
    ),
    "unclosed-string": Text("this string has no closing quote", "此字符串缺少右引号"),
    "missing-comma": Text("a comma is missing before {text}", "{text} 之前缺少逗号"),
    "missing-colon": Text("a colon is missing after the key {text}", "键 {text} 之后缺少冒号"),
    "missing-value": Text("the key {text} has no value", "键 {text} 没有值"),
    "unclosed": Text("this bracket is never closed", "此括号没有闭合"),
    "mismatched": Text("{text} has no matching opening bracket", "{text} 在此处没有对应的左括号"),
    "extra": Text("extra data after the end of the object", "对象结束之后文件还有内容"),
    "nesting": Text("nested too deeply", "嵌套过深，无法读取"),
    "too-long": Text(
        "the file is too long for a config; the rest was not read", "文件过长，不像是配置文件，其余部分未读取"
    ),
    "syntax": Text("unexpected: {text}", "此处不应出现：{text}"),
}

_SHOWN = 40


def shortened(text: str) -> str:
    """A text as messages quote it."""
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def problem_of(
    kind: str, place: Place, *, line: int = 0, text: str = "", repair: Edit | None = None, hjson: bool = False
) -> ConfigProblem:
    """A problem of one kind; ``text`` is what it speaks of, else what stands at its place.

    ``hjson`` says that Hjson reads it here, though not everywhere.
    """
    return ConfigProblem(
        kind,
        place,
        _MESSAGES[kind].format(text=shortened(text or place.text), line=line),
        json_accepts=kind in _READ_BY_JSON,
        hjson_accepts=hjson or kind in _READ_BY_HJSON,
        repair=repair,
    )
