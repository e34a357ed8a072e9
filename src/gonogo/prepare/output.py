"""A preparation as text or JSON."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from gonogo.evidence.prepared import FOLDER
from gonogo.finding import Text
from gonogo.finding.errors import UserError
from gonogo.prepare.packages.sources import shown as without_password
from gonogo.prepare.prepare import Preparation
from gonogo.prepare.project_requirements import FILE, Packages
from gonogo.prepare.required_inputs import RequiredInput
from gonogo.report.page import cells

FORMATS = ("text", "json")

_KINDS = {
    "model": Text("model", "模型"),
    "data": Text("data", "数据"),
    "media": Text("media", "媒体"),
    "variable": Text("environment variable", "环境变量"),
}
_STATES = {
    "here": Text("present", "已有"),
    "made": Text("generated", "已生成"),
    "can-be-made": Text("can be generated", "可生成"),
    "missing": Text("MISSING", "缺失"),
    "unknown": Text("unknown", "未知"),
}
_PARTS = {
    "configuration": Text("configuration", "配置"),
    "tokenizer": Text("tokenizer", "分词器"),
    "processor": Text("processor", "处理器"),
    "chat template": Text("chat template", "对话模板"),
}
_NOTHING = Text("the files of the launch name no models or data", "启动文件中没有给出模型或数据")
_WRITTEN = Text(
    "written: {folder}/ (at least {rows} rows per data set, about {tokens} tokens each); gonogo rehearse "
    "uses it automatically",
    "已写入：{folder}/（每个数据集至少 {rows} 行，每行约 {tokens} 个 token）；gonogo rehearse 会自动使用它",
)
_MODELS_WRITTEN = Text(
    "written: {folder}/; rehearsals in this folder find it by the model's name",
    "已写入：{folder}/；在此目录中排练时会按模型名称自动找到它",
)
_MODELS_NEXT = Text(
    "next: gonogo prepare -- COMMAND for a launch that uses it, or gonogo rehearse --synthetic-batch {name}",
    "下一步：对使用它的启动命令运行 gonogo prepare -- 命令，或 gonogo rehearse --synthetic-batch {name}",
)
_NOT_WRITTEN = Text("nothing written: nothing to generate", "没有写入任何内容：没有需要生成的")
_LISTED = Text(
    "nothing written (--list); run without --list to generate it", "没有写入任何内容（--list）；去掉 --list 即可生成"
)
_RAN_TO_FIRST_BATCH = Text("the program ran up to its first batch", "程序已运行到第一个批次")
_ENDED = Text("the program ended before its first batch: {why}", "程序在第一个批次之前结束：{why}")
_ENVIRONMENT = Text(
    "packages: as {files} requires ({file}); rehearsals use them automatically, --environment none uses "
    "the installed ones",
    "软件包：按 {files} 的要求（{file}）；排练会自动使用，--environment none 则使用已安装的",
)
_ADDED = Text(
    "additional packages that the launch needs: {names} (pip install them on the target machine too)",
    "启动还需要的软件包：{names}（目标机器上也要 pip install）",
)
_INSTALLED = Text("packages: what {files} requires is installed", "软件包：{files} 要求的均已安装")
_OWN = Text(
    "the project's own package {name}: imported from {source}, as after pip install -e . --no-deps",
    "项目自身的包 {name}：取自 {source}，相当于 pip install -e . --no-deps",
)
_NOT_AS_ASKED = Text("not as required: {what}: {why}", "与要求不同：{what}：{why}")
_FROM_ADDRESS = Text(
    "packages from URLs (fetched from there or missing, never replaced by the index's package of that name): {names}",
    "来自 URL 的软件包（只从该地址获取，否则缺失，绝不用索引中的同名包代替）：{names}",
)
_NOT_FOLLOWED = Text(
    "ignored: {line} (packages are installed only from the indexes in your own pip and uv configuration)",
    "已忽略：{line}（软件包只从你自己的 pip 和 uv 配置的索引安装）",
)
_NEXT = Text("next: gonogo rehearse {options}-- {command}", "下一步：gonogo rehearse {options}-- {command}")
_SKIPPED = Text("not checked: {what}: {why}", "未检查：{what}：{why}")


def known_format(name: str) -> str:
    """The name, if a list is written so. Raises UserError that names those there are."""
    if name not in FORMATS:
        raise UserError(
            Text("--format {name}: a list can be written as {known}", "--format {name}：清单只支持 {known}").format(
                name=repr(name), known=", ".join(FORMATS)
            )
        )
    return name


def write(
    stream: TextIO, done: Preparation, command: Sequence[str], format_name: str, language: str, made: bool
) -> None:
    """Write the list on a stream. ``made``: whether what is missing was to be made."""
    if format_name == "json":
        stream.write(json.dumps(_as_json(done, command, language), ensure_ascii=False, indent=2) + "\n")
        return
    for line in _lines(done, command, language, made):
        stream.write(line.rstrip() + "\n")


def _lines(done: Preparation, command: Sequence[str], language: str, made: bool) -> list[str]:
    typed = shlex.join(command)
    lines = [f"gonogo prepare -- {typed}" if command else "gonogo prepare --model", ""]
    if not done.wanted:
        lines += [f"  {_NOTHING.in_language(language)}"]
    for one in done.wanted:
        state, kind = _STATES[one.state].in_language(language), _KINDS[one.kind].in_language(language)
        lines.append(f"  {_pad(state, 12)} {_pad(kind, 9)} {one.name}" + (f"  ({one.place})" if one.place else ""))
        lines += [f"  {'':<22} {text}" for text in _details(one, language)]
    lines += [f"  {text.in_language(language)}" for text in _packages(done.packages)]
    for what, why in done.not_as_asked:
        lines.append("  " + _NOT_AS_ASKED.format(what=what, why=why).in_language(language))
    lines += [f"  {note.in_language(language)}" for note in done.package_notes]
    lines.append("")
    if done.folder is not None and not command:
        text = _MODELS_WRITTEN.format(folder=done.folder)
    elif done.folder is not None:
        text = _WRITTEN.format(folder=done.folder, rows=done.rows, tokens=done.tokens)
    else:
        text = _NOT_WRITTEN if made else _LISTED
    lines.append(text.in_language(language))
    if done.ended is not None:
        lines.append(_ENDED.format(why=Text(*done.ended)).in_language(language))
    elif done.looked is not None:
        lines.append(_RAN_TO_FIRST_BATCH.in_language(language))
    for skipped in done.skipped:
        lines.append(_SKIPPED.format(what=skipped.what, why=skipped.why).in_language(language))
    if made and not command:
        found = next(
            (f"{FOLDER}/{one.found}" if one.state == "made" else one.found for one in done.wanted if one.found), None
        )
        if found is not None:
            lines.append(_MODELS_NEXT.format(name=shlex.quote(found)).in_language(language))
    elif made:
        options = (
            f"--environment {shlex.quote(done.environment)} " if done.environment and not done.packages.differ else ""
        )
        lines.append(_NEXT.format(options=options, command=typed).in_language(language))
    return lines


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def _packages(packages: Packages) -> Iterator[Text]:
    """Which packages rehearsals have, and why."""
    if packages.lines and not packages.differ:
        yield _INSTALLED.format(files=", ".join(packages.files))
    elif packages.lines:
        yield _ENVIRONMENT.format(file=f"{FOLDER}/{FILE}", files=", ".join(packages.files))
        if packages.added:
            yield _ADDED.format(names=", ".join(packages.added))
        if addresses := [
            without_password(line.replace(" @ ", " from ")) for line in packages.lines.values() if " @ " in line
        ]:
            yield _FROM_ADDRESS.format(names=", ".join(addresses))
        for line in packages.index_lines:
            yield _NOT_FOLLOWED.format(line=line)
    if packages.own is not None:
        source = os.path.relpath(packages.own.source)
        yield _OWN.format(name=packages.own.name or source, source=source)


def _details(one: RequiredInput, language: str) -> list[str]:
    found = [one.why.in_language(language)] if one.why is not None else []
    if one.parts:
        shown = [_PARTS[name].in_language(language) + (" +" if there else " -") for name, there in one.parts.items()]
        found.append(", ".join(shown))
    if one.kind == "data" and one.columns and one.state == "made":
        found.append(", ".join(one.columns))
    return found


def _as_json(done: Preparation, command: Sequence[str], language: str) -> dict[str, Any]:
    return {
        "schema": "gonogo.prepare/1",
        "command": list(command),
        "complete": done.complete,
        "wanted": [
            {
                "kind": one.kind, "name": one.name, "place": one.place or None, "path": one.path, "state": one.state,
                "found": one.found, "why": one.why.in_language(language) if one.why is not None else None,
                "parts": one.parts, "columns": list(one.columns), "subset": one.subset,
            }
            for one in done.wanted
        ],
        "packages": {
            "files": done.packages.files,
            "requirements": sorted(done.packages.lines.values()),
            "added": sorted(done.packages.added),
            "installed": not done.packages.differ,
            "not_as_asked": [
                {"what": what.in_language(language), "why": why.in_language(language)}
                for what, why in done.not_as_asked
            ],
            "index_lines_not_followed": done.packages.index_lines,
            "own": None if done.packages.own is None else str(done.packages.own.source),
        },
        "folder": done.folder,
        "rows": done.rows,
        "tokens": done.tokens,
        "first_worker": done.looked,
        "ended_with": Text(*done.ended).in_language(language) if done.ended is not None else None,
        "skipped": [
            {"what": one.what.in_language(language), "why": one.why.in_language(language)} for one in done.skipped
        ],
    }  # fmt: skip
