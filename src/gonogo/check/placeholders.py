"""Parts of launches that can't be checked.

These are unfilled placeholders (``<model>``, ``/path/to/ds.json``), programs that exist only in an image, and
packages installed from a repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.paths import exists
from gonogo.evidence.run import Run
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Text, translated

_LAUNCH_COMMAND_PATTERN = re.compile(
    rb"(?m)^[ \t]*(?:\w+=\S*[ \t]+)*(?:torchrun|deepspeed|accelerate[ \t]+launch|llamafactory-cli|swift|axolotl|trl|"
    rb"python3?[ \t]+(?:-m[ \t]+torch|\S+\.py))\b(?:[^\n\\]|\\\r?\n|\\.)*"
)
"""A command that starts a training, with its continuation lines."""
_PLACEHOLDER_PATTERN = re.compile(rb"<[A-Za-z](?:[\w ./:-]{0,60}[A-Za-z_])?>")
_PATH_TO_PATTERN = re.compile(r"(^|[/\\])path[/_]to[/_]")
_MAX_SHOWN = 5
_UNFILLED_PLACEHOLDERS = translated("not checked: placeholders that are still to be filled in ({what}): {places}")
_PROGRAMS_NOT_LOCAL = translated("not checked: programs that exist only in an image or on a rented machine: {what}")
_VCS_URL_PATTERN = re.compile(r"(?:git|hg|svn|bzr)\+")
_VCS_BUILDS = translated(
    "not checked: packages installed from a repository, with no release stated in any file: {what}"
)
_AND_MORE = translated(" and {count} more")


def placeholders_in(source: SourceFile, launches: Sequence[Launch]) -> Iterator[tuple[str, str]]:
    """The placeholders in a script with their places: ``<words>`` in training commands, ``path/to`` file names."""
    for command in _LAUNCH_COMMAND_PATTERN.finditer(source.data) if b"<" in source.data else ():
        found = _PLACEHOLDER_PATTERN.search(command[0])
        if found is not None:
            line = source.data.count(b"\n", 0, command.start()) + 1
            yield found[0].decode("utf-8", "replace"), f"{source.path}:{line}"
    for launch in launches:
        for field in (launch.program, launch.deepspeed_config, launch.framework_config, launch.accelerate_config):
            path = launch.path_of(field)
            if path is not None and _PATH_TO_PATTERN.search(str(field.value)) and not exists(path):
                yield str(field.value), f"{launch.source.path}:{launch.line}"


def placeholder_note(placeholders: Sequence[tuple[str, str]]) -> Text | None:
    """One note that lists all placeholders; None if there are none."""
    if not placeholders:
        return None
    what = list(dict.fromkeys(f"`{name}`" for name, _ in placeholders))
    places = list(dict.fromkeys(place for _, place in placeholders))
    return _UNFILLED_PLACEHOLDERS.format(what=_list_names(what), places=_list_names(places))


def missing_programs_note(launches: Sequence[Launch]) -> Text | None:
    """A note listing programs started by queued jobs and containers that don't exist here; None if all of them do."""
    found = []
    for launch in launches:
        path = launch.path_of(launch.program) if launch.program_kind == "script" and launch.heredoc is None else None
        if path is not None and not exists(path) and os.path.normpath(path) not in launch.written_files:
            found.append(f"{launch.program.value} ({launch.source.path}:{launch.line})")
    return _PROGRAMS_NOT_LOCAL.format(what=_list_names(list(dict.fromkeys(found)))) if found else None


def vcs_packages_note(runs: Sequence[Run]) -> Text | None:
    """A note listing packages installed from a repository, whose release is unknown; None if there are none."""
    found = [
        f"{package.address} ({package.place.source.path}:{package.place.line})"
        for run in runs
        for package in run.environment.packages.values()
        if package.place is not None and _VCS_URL_PATTERN.match(package.address)
    ]
    return _VCS_BUILDS.format(what=_list_names(list(dict.fromkeys(found)))) if found else None


def _list_names(names: Sequence[str]) -> Text:
    shown = ", ".join(names[:_MAX_SHOWN])
    more = _AND_MORE.format(count=len(names) - _MAX_SHOWN) if len(names) > _MAX_SHOWN else Text("", "")
    return Text(shown + more.en, shown + more.zh)
