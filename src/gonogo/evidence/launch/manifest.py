"""Finds the launches in job manifests: jobs of Kubernetes operators, and SkyPilot tasks.

For each: the command with its environment, and the nodes, accelerators and memory that it requests. Variables that an
operator adds to a container's environment are added too, with the first node's values. The code for each format is in
``jobs/``.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gonogo.evidence.launch.jobs.workload import Workload, local_path_of_mount, shell_code_of
from gonogo.evidence.launch.jobs.yaml_node import PlacedText, YamlNode
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Text, translated

if TYPE_CHECKING:
    from gonogo.evidence.shell.script_commands import ShellCommand
    from gonogo.evidence.shell.text import ShellWord

_KINDS_PATTERN = re.compile(
    rb"^[ \t]*[\"']?kind[\"']?:\s*[\"']?"
    rb"(PyTorchJob|HyperPodPyTorchJob|TrainJob|JobSet|Job|RunaiJob|MPIJob|RayJob|Pod)\b",
    re.MULTILINE,
)
_SKYPILOT_KEY_PATTERN = re.compile(rb"^(?:resources|num_nodes|workdir|envs|setup|file_mounts):", re.MULTILINE)
_RUN_KEY_PATTERN = re.compile(rb"^run:", re.MULTILINE)
_MAX_BYTES = 1 << 20
_MAX_JOBS = 50
_MAX_DOCUMENTS = 500
_TOO_MANY = translated(
    "the file contains more than {limit} jobs, and the rest were not read: give only the training job"
)
_TEMPLATE_NOTE = translated(
    "the file is a template, which is not YAML until it is rendered: check the rendered file, for example: "
    "helm template . > job.yaml"
)


def is_manifest(source: SourceFile) -> bool:
    """Whether a YAML file may be a manifest, judged by keys and kinds that only manifests have."""
    data = source.data
    if len(data) > _MAX_BYTES:
        return False
    if _KINDS_PATTERN.search(data) and b"apiVersion" in data:
        return True
    return bool(_RUN_KEY_PATTERN.search(data) and _SKYPILOT_KEY_PATTERN.search(data))


def template_note(source: SourceFile) -> Text | None:
    """Advice to render a manifest that is still a template (Helm, Jinja); None for any other file."""
    lines = source.text.splitlines() if is_manifest(source) and "{{" in source.text else ()
    written = any("}}" in line.partition("#")[0].partition("{{")[2] for line in lines)
    return _TEMPLATE_NOTE if written and not parse_workloads(source) else None


def _yaml_documents(source: SourceFile) -> list[YamlNode]:
    """The YAML documents of a file, up to the first that can't be parsed."""
    import yaml

    documents: list[object] = []
    found: list[YamlNode] = []
    try:
        for document in yaml.compose_all(source.text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if len(documents) == _MAX_DOCUMENTS:
                source.gap = source.gap or _TOO_MANY.format(limit=_MAX_JOBS)
                break
            documents.append(document)
            found.append(YamlNode(document, source, documents))
    except (yaml.YAMLError, RecursionError):
        pass  # documents before the broken one are still used
    return found


@lru_cache(maxsize=16)
def parse_workloads(source: SourceFile) -> tuple[Workload, ...]:
    """The jobs of a file, in order; empty if it is no manifest, or broken."""
    if not is_manifest(source):
        return ()
    from gonogo.evidence.launch.jobs.kubernetes import kubernetes_jobs
    from gonogo.evidence.launch.jobs.skypilot import skypilot_task

    found: list[Workload] = []
    for node in _yaml_documents(source):
        if len(found) >= _MAX_JOBS:
            source.gap = source.gap or _TOO_MANY.format(limit=_MAX_JOBS)
            break
        if node["kind"].text:
            found += kubernetes_jobs(node)
        elif node["run"].text:
            found.append(skypilot_task(node))
    return tuple(found)


def workload_at(place: Place) -> Workload | None:
    """The job whose command is at ``place``; None if there is none."""
    for work in parse_workloads(place.source):
        if work.words and work.words[0].place.start <= place.start <= work.words[-1].place.end:
            return work
    return None


def manifest_commands(source: SourceFile, folder: Path) -> list[ShellCommand]:
    """The commands that the jobs of a file run."""
    from msgspec.structs import replace

    from gonogo.evidence.shell.script_commands import ShellCommand, read_shell
    from gonogo.evidence.shell.state import Variable
    from gonogo.evidence.shell.text import Piece, ShellWord

    def to_piece(word: PlacedText) -> Piece:
        return Piece(word.text, source, word.place.start, word.place.end)

    commands = []
    for work in parse_workloads(source):
        words = tuple(ShellWord((to_piece(word),), word.place, quoted=True) for word in work.words)
        environment = {
            name: Variable((to_piece(word),), word.place, exported=True) for name, word in work.environment.items()
        }
        written = {os.path.normpath(path): ((to_piece(word),), word.place) for path, word in work.files.items()}
        script = shell_code_of(work)
        if script is not None:
            code, part = shell_code_source(script)
            inside = read_shell(code, folder, cwd_known=False, environment=environment, part=part)
        elif words:
            place = Place(source, words[0].place.start, words[-1].place.end)
            inside = [ShellCommand(words, place, place, environment, frozenset(), {}, folder, False, {})]
        else:
            continue
        commands += [
            replace(
                command,
                words=tuple(_map_to_local_path(word, work, folder) for word in command.words),
                written={**written, **command.written},
            )
            for command in inside
        ]
    return commands


def _map_to_local_path(word: ShellWord, workload: Workload, folder: Path) -> ShellWord:
    """Replace a path in the job's container (a word or an option's value) by the local path that it comes from."""
    from gonogo.evidence.shell.text import Piece, ShellWord

    option, equals, path = (word.value or "").rpartition("=")
    here = local_path_of_mount(workload, path, folder) if path else None
    if here is None or (equals and not option.startswith("-")):
        return word
    return ShellWord((Piece(option + equals + here, *_span_of_word(word)),), word.place, quoted=True)


def _span_of_word(word: ShellWord) -> tuple[SourceFile, int, int]:
    return word.place.source, word.place.start, word.place.end


def shell_code_source(word: PlacedText) -> tuple[SourceFile, tuple[int, int]]:
    """A source file that holds the word's shell code, and the range of it to parse as shell.

    This is the word's own file if it contains the code verbatim. If YAML folds several lines into one, a copy is used
    in which their line ends are escaped, each in place of one blank of the next line's indentation, so that offsets
    stay the same. Failing that, it is the code alone, preceded by enough newlines to keep its line numbers.
    """
    source, text = word.place.source, word.text or ""
    start, end = word.place.start, word.place.end
    data = source.data
    if word.style in ("|", ">"):
        start = data.find(b"\n", start, end) + 1
    elif word.style:
        start, end = start + 1, end - 1
    if word.style == "|":
        return source, (start, end)
    written = data[start:end]
    if written.decode("utf-8", "replace") == text:
        return source, (start, end)
    folded = re.sub(rb"(?<=\S)\n (?= *\S)", rb"\\\n", written)
    if word.style != '"' and _collapse_whitespace(folded.decode("utf-8", "replace")) == _collapse_whitespace(text):
        return SourceFile(source.path, data[:start] + folded + data[end:], writable=source.writable), (start, end)
    before = b"\n" * data.count(b"\n", 0, start)
    alone = before + text.encode("utf-8", "surrogateescape")
    return SourceFile(source.path, alone, writable=False), (len(before), len(alone))


def _collapse_whitespace(code: str) -> str:
    lines = re.sub(r"[ \t]*\n\s*", "\n", code.replace("\\\n", " "))
    return re.sub(r"[ \t]+", " ", lines).strip()
