"""Writes the result of ``gonogo prepare`` as text or JSON."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from gonogo.evidence.prepared import FOLDER
from gonogo.finding import Text, UserError, Verdict, translated
from gonogo.prepare.packages.sources import url_without_credentials as without_password
from gonogo.prepare.prepare import Preparation
from gonogo.prepare.project_requirements import FILE, ProjectPackages
from gonogo.prepare.required_inputs import RequiredInput
from gonogo.report.page import column_width

FORMATS = ("text", "json")

_INPUT_KIND_TEXTS = {
    "model": translated("model"),
    "data": translated("data"),
    "media": translated("media"),
    "variable": translated("environment variable"),
}
_STATE_LABELS = {
    "here": translated("present"),
    "made": translated("generated"),
    "can-be-made": translated("can be generated"),
    "missing": translated("MISSING"),
    "unknown": translated("unknown"),
}
_PART_LABELS = {
    "configuration": translated("configuration"),
    "tokenizer": translated("tokenizer"),
    "processor": translated("processor"),
    "chat template": translated("chat template"),
}
_NOTHING_NAMED = translated("the launch's files refer to no models or data")
_FILES_WRITTEN = translated(
    "written: {folder}/ (at least {rows} rows per data set, about {tokens} tokens each); gonogo rehearse "
    "uses it automatically"
)
_MODELS_WRITTEN = translated("written: {folder}/; rehearsals in this folder find it by the model's name")
_MODELS_NEXT = translated(
    "next: gonogo prepare -- COMMAND for a launch that uses it, or gonogo rehearse --synthetic-batch {name}"
)
_NOT_WRITTEN = translated("nothing written: nothing to generate")
_NEEDS_LISTED = translated("nothing written (--list): what the launch needs is listed below")
_PREPARED = translated(" (prepared)")
_ONLY_LISTED = translated(" (listed)")
_LACKING = translated("{count} of {all} items needed here could not be provided: {names}")
_CAN_BE_MADE = translated("{count} of {all} items needed here can be generated: {names}")
_NEXT_MAKES = translated("next: gonogo prepare {command}")
_RAN_TO_FIRST_BATCH = translated("the program ran up to its first batch")
_ENDED_BEFORE_FIRST_BATCH = translated("the program ended before its first batch: {why}")
_PACKAGES_LINE = translated(
    "packages: as {files} requires ({file}); rehearsals use them automatically, --environment none uses "
    "the installed ones"
)
_ADDED = translated("additional packages that the launch needs: {names} (pip install them on the target machine too)")
_REQUIREMENTS_INSTALLED = translated("packages: what {files} requires is installed")
_PROJECT_PACKAGE_LINE = translated(
    "the project's own package {name}: imported from {source}, as after pip install -e . --no-deps"
)
_DIFFERS_FROM_REQUIREMENT = translated("differs from what is required: {what}: {why}")
_PACKAGES_FROM_URLS = translated(
    "packages from URLs (fetched from there or missing, never replaced by the index's package of that name): {names}"
)
_INDEX_LINE_IGNORED = translated(
    "ignored: {line} (packages are installed only from the indexes in your own pip and uv configuration)"
)
_NEXT_COMMAND = translated("next: gonogo rehearse {options}-- {command}")
_SKIPPED = translated("not checked: {what}: {why}")


def check_format(name: str) -> str:
    """The name if it is a known format. Raises UserError, which lists the formats, otherwise."""
    if name not in FORMATS:
        raise UserError(
            translated("--format {name}: a list can be written as {known}").format(
                name=repr(name), known=", ".join(FORMATS)
            )
        )
    return name


def write_list(
    stream: TextIO, done: Preparation, command: Sequence[str], format_name: str, language: str, make_missing: bool
) -> None:
    """Write the list to a stream. ``make_missing`` tells whether missing inputs were to be generated."""
    if format_name == "json":
        stream.write(json.dumps(_to_json_dict(done, command, language), ensure_ascii=False, indent=2) + "\n")
        return
    for line in _summary_lines(done, command, language, make_missing):
        stream.write(line.rstrip() + "\n")


def _summary_lines(done: Preparation, command: Sequence[str], language: str, make_missing: bool) -> list[str]:
    lines = [text.in_language(language) for text in _verdict_lines(done, command, make_missing)]
    lines += ["", f"gonogo prepare -- {shlex.join(command)}" if command else "gonogo prepare --model", ""]
    if not done.wanted:
        lines += [f"  {_NOTHING_NAMED.in_language(language)}"]
    for one in done.wanted:
        state, kind = _STATE_LABELS[one.state].in_language(language), _INPUT_KIND_TEXTS[one.kind].in_language(language)
        lines.append(f"  {_pad(state, 12)} {_pad(kind, 9)} {one.name}" + (f"  ({one.place})" if one.place else ""))
        lines += [f"  {'':<22} {text}" for text in _detail_lines(one, language)]
    lines += [f"  {text.in_language(language)}" for text in _describe_packages(done.packages)]
    for what, why in done.not_as_asked:
        lines.append("  " + _DIFFERS_FROM_REQUIREMENT.format(what=what, why=why).in_language(language))
    lines += [f"  {note.in_language(language)}" for note in done.package_notes]
    lines.append("")
    if not done.is_complete:
        lines.append(_result_text(done, command, make_missing).in_language(language))
    if done.ended is not None:
        lines.append(_ENDED_BEFORE_FIRST_BATCH.format(why=Text(*done.ended)).in_language(language))
    elif done.looked is not None:
        lines.append(_RAN_TO_FIRST_BATCH.in_language(language))
    for skipped in done.skipped:
        lines.append(_SKIPPED.format(what=skipped.what, why=skipped.why).in_language(language))
    return lines[:-1] if not lines[-1] else lines


def _verdict_lines(done: Preparation, command: Sequence[str], made: bool) -> Iterator[Text]:
    """The verdict, the reason and the next command, one line each."""
    verdict = Verdict.GO if done.is_complete else Verdict.CANNOT_TELL
    scope = (_PREPARED if made else _ONLY_LISTED) if done.is_complete else Text("", "")
    yield Text(f" {verdict.value}{scope.en}   gonogo prepare", f" {verdict.value}{scope.zh}   gonogo prepare")
    lacking = [one.name for one in done.wanted if one.state in ("missing", "unknown")]
    if done.is_complete:
        yield _result_text(done, command, made)
    elif lacking:
        yield _LACKING.format(count=len(lacking), all=len(done.wanted), names=", ".join(lacking))
    elif done.ended is not None:
        yield _ENDED_BEFORE_FIRST_BATCH.format(why=Text(*done.ended))
    else:
        names = [one.name for one in done.wanted if one.state == "can-be-made"]
        yield _CAN_BE_MADE.format(count=len(names), all=len(done.wanted), names=", ".join(names))
    yield _next_command(done, command, made)


def _result_text(done: Preparation, command: Sequence[str], made: bool) -> Text:
    if done.folder is not None and not command:
        return _MODELS_WRITTEN.format(folder=done.folder)
    if done.folder is not None:
        return _FILES_WRITTEN.format(folder=done.folder, rows=done.rows, tokens=done.tokens)
    return _NOT_WRITTEN if made else _NEEDS_LISTED


def _next_command(done: Preparation, command: Sequence[str], made: bool) -> Text:
    typed = shlex.join(command)
    if not made:
        return _NEXT_MAKES.format(command=f"-- {typed}" if command else "--model NAME")
    if command:
        options = (
            f"--environment {shlex.quote(done.environment)} "
            if done.environment and not done.packages.differs_from_installed
            else ""
        )
        return _NEXT_COMMAND.format(options=options, command=typed)
    found = next(
        (f"{FOLDER}/{one.found}" if one.state == "made" else one.found for one in done.wanted if one.found), None
    )
    return _MODELS_NEXT.format(name=shlex.quote(found or "MODEL"))


def _pad(text: str, width: int) -> str:
    return text + " " * (width - column_width(text))


def _describe_packages(packages: ProjectPackages) -> Iterator[Text]:
    """Which packages rehearsals have, and why."""
    if packages.lines and not packages.differs_from_installed:
        yield _REQUIREMENTS_INSTALLED.format(files=", ".join(packages.files))
    elif packages.lines:
        yield _PACKAGES_LINE.format(file=f"{FOLDER}/{FILE}", files=", ".join(packages.files))
        if packages.added:
            yield _ADDED.format(names=", ".join(packages.added))
        if addresses := [
            without_password(line.replace(" @ ", " from ")) for line in packages.lines.values() if " @ " in line
        ]:
            yield _PACKAGES_FROM_URLS.format(names=", ".join(addresses))
        for line in packages.index_lines:
            yield _INDEX_LINE_IGNORED.format(line=line)
    if packages.own is not None:
        source = os.path.relpath(packages.own.source)
        yield _PROJECT_PACKAGE_LINE.format(name=packages.own.name or source, source=source)


def _detail_lines(required_input: RequiredInput, language: str) -> list[str]:
    found = [required_input.why.in_language(language)] if required_input.why is not None else []
    if required_input.parts:
        shown = [
            _PART_LABELS[name].in_language(language) + (" +" if there else " -")
            for name, there in required_input.parts.items()
        ]
        found.append(", ".join(shown))
    if required_input.kind == "data" and required_input.columns and required_input.state == "made":
        found.append(", ".join(required_input.columns))
    return found


def _to_json_dict(done: Preparation, command: Sequence[str], language: str) -> dict[str, Any]:
    return {
        "schema": "gonogo.prepare/1",
        "command": list(command),
        "complete": done.is_complete,
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
            "installed": not done.packages.differs_from_installed,
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
