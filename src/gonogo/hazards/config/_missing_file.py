"""A DeepSpeed config that a launch names and that is not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gonogo.evidence.field import Field
from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Edit, Finding, Fix, Text
from gonogo.hazards.hazard import Hazard

_SUFFIXES = (".json", ".jsonc", ".json5", ".yaml", ".yml")
_MOST = 400


def missing_config(hazard: Hazard, launch: Launch, run: Run) -> Iterator[Finding]:
    """The path, where it leads nowhere and nothing in the files would make it."""
    field = launch.deepspeed_config
    written = field.string
    if run.config is not None or not written or not written.endswith(_SUFFIXES) or "{" in written or "\n" in written:
        return
    path = launch.path_of(field)
    if path is None or _is_there(path) or os.path.normpath(path) in launch.written_files:
        return
    if os.path.isabs(os.path.expanduser(written)) and not path.parent.is_dir():
        return  # another machine's path
    alike = _alike(path)
    typed = not launch.source.writable
    elsewhere = _found_above(launch, written)
    if elsewhere and not typed:
        return  # right from another working folder, which is where it may be started
    made = any(path.name.encode() in script.source.data for script in run.scripts)
    if made or launch.source.data.count(path.name.encode()) > 1:
        return  # something else names it too, and may write it
    fixes: tuple[Fix, ...] = ()
    if alike and not os.path.isabs(written):
        new = os.path.join(os.path.dirname(written), os.path.basename(alike))
        edit = _naming(launch, field, new)
        if edit is not None:
            fixes = (hazard.fix(Text("Name {new}", "改为 {new}").format(new=new), edit, safe=False),)
    nearest = Text(" The folder has {alike}.", " 该目录中有 {alike}。").format(alike=os.path.basename(alike or ""))
    sure = typed or launch.cwd_known
    yield hazard.finding(
        Text(
            en="{written} is no file (looked for as {path}).{nearest} transformers and DeepSpeed then take the name "
            "for base64 text and fail while decoding it.",
            zh="{written} 不是文件（按 {path} 查找）。{nearest}transformers 与 DeepSpeed 会把这个名字当作 base64 文本解"
            "码而失败。",
        ).format(written=written, path=path, nearest=nearest if alike else ""),
        certainty=Certainty.CERTAIN if sure else Certainty.LIKELY if alike else Certainty.POSSIBLE,
        cure=(
            Text(
                "Give the path of an existing file, absolute or from the folder that the command runs in",
                "给出确实存在的文件：绝对路径，或相对于命令运行目录的路径",
            ),
        ),
        spans=(field.span(),),
        fixes=fixes,
        confirm=() if sure else (Text("ls PATH fails in the launch's directory", "在启动目录中 ls 该路径会失败"),),
    )


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return True


def _found_above(launch: Launch, written: str) -> bool:
    """Whether a folder above has the file by that path: people start scripts from a project's top."""
    folder = launch.cwd
    for _ in range(3):
        folder = folder.parent
        if _is_there(folder / written):
            return True
    return False


def _alike(path: Path) -> str | None:
    """A file beside it with nearly the same name, or None."""
    import difflib

    try:
        names = [entry.name for entry in os.scandir(path.parent)][:_MOST]
    except OSError:
        return None
    near = difflib.get_close_matches(path.name, [name for name in names if name.endswith(_SUFFIXES)], 1, 0.75)
    return str(path.parent / near[0]) if near else None


def _naming(launch: Launch, field: Field, new: str) -> Edit | None:
    for name in ("deepspeed", "deepspeed_config", "deepspeed_config_file"):
        for options in (launch.options, launch.launcher_options):
            if name in options and options.can_edit(name) and options.get(name).value == field.value:
                return options.replacing(name, new)
    return None
