"""YAML files with the place of every value: configs of accelerate, LLaMA-Factory, axolotl, ms-swift.

Parsed event by event, so that a broken file is read up to the error, and one that expands through aliases stays
small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import accumulate
from typing import Any

import msgspec

from gonogo.evidence.document.json_problems import ConfigProblem
from gonogo.evidence.document.tree import Member, TreeNode
from gonogo.evidence.document.yaml_edit import MappingLayout, YamlEditor
from gonogo.evidence.document.yaml_scalars import parse_yaml_scalar
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Edit, Text, translated

_MAX_DEPTH = 60
_MAX_NODES = 100_000
_MAX_BYTES = 1 << 20
_MERGE_KEY = "<<"

_INVALID_YAML = translated("the file is not valid YAML: {why}")
_DUPLICATE_KEY = translated("the key `{key}` is given twice, and PyYAML silently uses the last value")
_NOT_AN_OBJECT = translated("the file is not a mapping of keys to values")
_SECOND_DOCUMENT = translated("the file contains a second YAML document, which is not read")
_NOT_UTF8 = translated("the file is not UTF-8 text")
_TOO_LONG = translated(
    "the file has {size} KiB, and gonogo reads YAML files only up to {limit} KiB: move the data out of the config"
)
_TOO_LARGE = translated("the file is nested too deeply, or repeats itself too often, for gonogo to read it")
_TOO_LARGE_VALUE = translated("the file's aliases expand to more values than gonogo reads")
_TAGGED = translated("the YAML tag `{tag}` changes the value in a way that gonogo does not know")


class _OpenCollection:
    """A mapping or sequence whose end event has not come yet."""

    def __init__(self, start: int, *, mapping: bool, flow: bool, anchor: str | None) -> None:
        self.start = start
        self.mapping = mapping
        self.flow = flow
        self.anchor = anchor
        self.value: Any = {} if mapping else []
        self.members: dict[str, Member] = {}
        self.merged: dict[str, Member] = {}
        self.entries: list[tuple[str, int, int, int]] = []
        self.key: tuple[str, Place] | None = None
        self.size = 1
        self.end = start


class YamlFile:
    """A YAML file. Never raises for its content: what can't be parsed is in :attr:`problems`."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self._problems: list[ConfigProblem] = []
        self._layouts: dict[int, MappingLayout] = {}
        self._kept: list[TreeNode] = []
        self.root = self._parse_tree()

    @property
    def problems(self) -> tuple[ConfigProblem, ...]:
        """All problems of the text."""
        return tuple(self._problems)

    @property
    def fatal_problems(self) -> tuple[ConfigProblem, ...]:
        """The first error that PyYAML reports, if any."""
        return tuple(problem for problem in self._problems if problem.kind in ("syntax", "encoding"))[:1]

    @property
    def is_readable(self) -> bool:
        """Whether PyYAML can parse the file and it contains a mapping."""
        return not any(problem.kind in ("syntax", "encoding", "not-an-object") for problem in self._problems)

    def get(self, *keys: str) -> Field:
        """The value under nested keys; absent if there is none, unknown if the file can't be parsed completely."""
        node = self.root.find(keys)
        if node is not None:
            return node.field
        parent = self.root
        for key in keys:
            member = parent.members.get(key) if parent.members is not None else None
            if member is None:
                break
            parent = member.node
        if parent.field.unknown:
            return Field.not_known(parent.field.place, parent.field.reason)
        if not self.is_readable:
            problem = self._problems[0]
            return Field.not_known(problem.place, problem.message)
        return Field.missing()

    def key_place(self, *keys: str) -> Place | None:
        """The place of a key."""
        member = self.root.member(keys)
        return member.key_place if member is not None else None

    def entries(self) -> Iterator[tuple[tuple[str, ...], Field]]:
        """All values with their nested keys, mappings before their entries."""
        return self.root.entries()

    def top_level_keys(self) -> tuple[str, ...]:
        """The top-level keys."""
        return tuple(self.root.members or ())

    def replacing(self, *keys: str, value: Any) -> Edit:
        """An edit that replaces the value of a key. Raises KeyError if it has no place of its own."""
        return self._editor.replacing(keys, value)

    def removing(self, *keys: str) -> Edit:
        """An edit that removes a key with its value and line. Raises KeyError if it has no place of its own."""
        return self._editor.removing(keys)

    def inserting(self, *keys: str, value: Any) -> Edit:
        """An edit that adds a key after its neighbours, or replaces its value."""
        return self._editor.inserting(keys, value)

    @property
    def _editor(self) -> YamlEditor:
        return YamlEditor(self.source, self.root, self._layouts)

    @cached_property
    def _decoded_text(self) -> str:
        text = self.source.data[self.source.start :].decode("utf-8", "surrogateescape")
        if self.source.is_utf8:
            return text
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)

    @cached_property
    def _offsets(self) -> list[int] | None:
        """The byte offset of each character; None if the text is ASCII."""
        data = self.source.data
        if data.isascii():
            return None
        text = data[self.source.start :].decode("utf-8", "surrogateescape")
        sizes = (len(character.encode("utf-8", "surrogateescape")) for character in text)
        return list(accumulate(sizes, initial=self.source.start))

    def _byte_offset(self, mark: Any) -> int:
        if self._offsets is None:
            return min(self.source.start + int(mark.index), len(self.source.data))
        return self._offsets[min(int(mark.index), len(self._offsets) - 1)]

    def _add_problem(self, kind: str, start: int, end: int, message: Text) -> None:
        if len(self._problems) < 100:
            self._problems.append(ConfigProblem(kind, self.source.place(start, end), message))

    def _parse_tree(self) -> TreeNode:
        import yaml

        if len(self.source.data) > _MAX_BYTES:
            message = _TOO_LONG.format(size=len(self.source.data) >> 10, limit=_MAX_BYTES >> 10)
            self.source.gap = self.source.gap or message
            self._add_problem("syntax", self.source.start, self.source.start, message)
            return TreeNode(Field.of({}, self.source.place(self.source.start, self.source.start)), {})
        if not self.source.is_utf8:
            self._add_problem("encoding", self.source.start, self.source.start, _NOT_UTF8)
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        reading = _TreeBuilder(self)
        try:
            for event in yaml.parse(self._decoded_text, Loader=loader):
                if not reading.process_event(event):
                    break
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            start = self._byte_offset(mark) if mark is not None else self.source.start
            why = str(error.problem or error.context or "")
            self._add_problem("syntax", start, start, _INVALID_YAML.format(why=why))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            self._add_problem("syntax", self.source.start, self.source.start, _INVALID_YAML.format(why=why))
        root = reading.build()
        if root is None or root.members is None:
            if self._decoded_text.strip() and not self._problems:
                self._add_problem("not-an-object", self.source.start, self.source.start, _NOT_AN_OBJECT)
            return TreeNode(Field.of({}, self.source.place(self.source.start, self.source.start)), {})
        return root


class _TreeBuilder:
    """Builds a tree of values from PyYAML's parsing events."""

    def __init__(self, file: YamlFile) -> None:
        self._file = file
        self._open: list[_OpenCollection] = []
        self._root: TreeNode | None = None
        self._anchors: dict[str, tuple[TreeNode, int]] = {}
        self._size = 0
        self._documents = 0
        self._events = 0

    def process_event(self, event: Any) -> bool:
        """Process an event; False to stop parsing."""
        import yaml

        self._events += 1
        if self._events > _MAX_NODES:
            start = self._file._byte_offset(event.start_mark)
            self._file._add_problem("syntax", start, start, _TOO_LARGE)
            return False
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                start = self._file._byte_offset(event.start_mark)
                self._file._add_problem("documents", start, start, _SECOND_DOCUMENT)
                return False
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if len(self._open) > _MAX_DEPTH or self._size > _MAX_NODES:
                start = self._file._byte_offset(event.start_mark)
                self._file._add_problem("syntax", start, start, _TOO_LARGE)
                return False
            mapping = isinstance(event, yaml.MappingStartEvent)
            start = self._file._byte_offset(event.start_mark)
            opened = _OpenCollection(start, mapping=mapping, flow=bool(event.flow_style), anchor=event.anchor)
            self._open.append(opened)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close_collection(self._file._byte_offset(event.end_mark))
        elif isinstance(event, yaml.ScalarEvent):
            self._add_scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            self._add_alias(event)
        return True

    def build(self) -> TreeNode | None:
        """The tree, even if the file ends within it."""
        while self._open:
            self._close_collection(self._open[-1].end)
        return self._root

    def _add_scalar(self, event: Any) -> None:
        file = self._file
        start, end = file._byte_offset(event.start_mark), file._byte_offset(event.end_mark)
        place = file.source.place(start, end)
        value, known = parse_yaml_scalar(event.value, event.tag, plain=bool(event.implicit[0]))
        field = Field.of(value, place) if known else Field.not_known(place, _TAGGED.format(tag=str(event.tag)[:60]))
        node = TreeNode(field)
        if event.anchor:
            self._anchors[event.anchor] = (node, 1)
        if self._expects_key():
            self._open[-1].key = (str(event.value), place)
            return
        self._add_node(node, start, end, 1)

    def _add_alias(self, event: Any) -> None:
        file = self._file
        start, end = file._byte_offset(event.start_mark), file._byte_offset(event.end_mark)
        found = self._anchors.get(event.anchor)
        place = file.source.place(start, end)
        if self._expects_key():
            self._open[-1].key = (str(found[0].field.value) if found else event.anchor, place)
            return
        if found is None or self._size + found[1] > _MAX_NODES:
            self._add_node(TreeNode(Field.not_known(place, _TOO_LARGE_VALUE)), start, end, 1)
            return
        node, size = found
        self._add_node(
            msgspec.structs.replace(node, field=msgspec.structs.replace(node.field, place=place)), start, end, size
        )

    def _expects_key(self) -> bool:
        """Whether the next scalar is a key of the innermost mapping."""
        return bool(self._open) and self._open[-1].mapping and self._open[-1].key is None

    def _close_collection(self, end: int) -> None:
        opened = self._open.pop()
        end = end if opened.flow else opened.end
        members: Mapping[str, Member] | None = None
        if opened.mapping:
            for name, member in opened.merged.items():
                opened.members.setdefault(name, member)
                opened.value.setdefault(name, member.node.field.value)
            members = opened.members
        node = TreeNode(Field.of(opened.value, self._file.source.place(opened.start, end)), members)
        if opened.mapping:
            self._file._kept.append(node)
            self._file._layouts[id(node)] = MappingLayout(opened.flow, opened.start, end, tuple(opened.entries))
        if opened.anchor:
            self._anchors[opened.anchor] = (node, opened.size)
        if self._expects_key():
            self._open[-1].key = ("", self._file.source.place(opened.start, end))
            return
        self._add_node(node, opened.start, end, opened.size)

    def _add_node(self, node: TreeNode, start: int, end: int, size: int) -> None:
        self._size += size
        if not self._open:
            if self._root is None:
                self._root = node
            return
        parent = self._open[-1]
        parent.size += size
        parent.end = max(parent.end, end)
        if not parent.mapping:
            parent.value.append(node.field.value)
            if (
                (self._open[-2].key or ("",))[0] == _MERGE_KEY
                if len(self._open) > 1 and self._open[-2].mapping
                else False
            ):
                parent.merged.update({n: m for n, m in (node.members or {}).items() if n not in parent.merged})
            return
        name, key_place = parent.key or ("", self._file.source.place(start, start))
        parent.key = None
        parent.end = max(parent.end, key_place.end)
        if name == _MERGE_KEY:
            members = node.members or {}
            parent.merged.update({n: m for n, m in members.items() if n not in parent.merged})
            return
        if name in parent.members:
            self._file._add_problem(
                "duplicate-key", key_place.start, key_place.end, _DUPLICATE_KEY.format(key=name[:80])
            )
        value_end = end if end > key_place.end else key_place.end + 1
        parent.entries.append((name, key_place.start, start, min(value_end, len(self._file.source.data))))
        parent.members[name] = Member(key_place, node)
        parent.value[name] = node.field.value


def read_yaml(source: SourceFile) -> YamlFile:
    """Parse a YAML file. Never raises for its content."""
    return YamlFile(source)
