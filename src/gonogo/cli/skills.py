"""The command ``gonogo skills``: prints gonogo's skill file, or installs it where an agent finds it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import Lang
from gonogo.finding import UserError, translated
from gonogo.finding.language import choose_language

_SKILL_FOLDERS = {"claude": ".claude/skills", "codex": ".codex/skills", "opencode": ".opencode/skills"}
"""The folder in which each agent looks for skills, in a project and in the home directory."""


def skills(
    action: Annotated[str, typer.Argument(metavar="install|show", help="Install the skill, or print it.")],
    target: Annotated[
        str, typer.Option(metavar="claude|codex|opencode|DIR", help="The agent to install it for, or a skills folder.")
    ] = "claude",
    everywhere: Annotated[
        bool, typer.Option("--global", help="Install for all projects (in the home directory, not in this folder).")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that was changed.")] = False,
    lang: Lang = None,
) -> None:
    """Teach a coding agent when to use which command: a SKILL.md, short, with what it must never do.

    For instance: gonogo skills install    or: gonogo skills show --lang zh

    安装或显示供编程助手使用的技能文件。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        if action == "show":
            from gonogo.report.output import publish_text

            publish_text(lambda stream: stream.write(skill_text(language)), None)
        elif action == "install":
            path, is_new = install_skill(skill_text(language), target, install_globally=everywhere, force=force)
            text = translated("wrote {path}") if is_new else translated("{path} already exists")
            typer.echo(text.format(path=path).in_language(language))
        else:
            raise UserError(translated("gonogo skills {action}: must be install or show").format(action=repr(action)))


def skill_text(language: str) -> str:
    """The text of the skill file."""
    name = "SKILL.zh.md" if language == "zh" else "SKILL.md"
    return (Path(__file__).parent / "skill" / name).read_text(encoding="utf-8")


def install_skill(text: str, target: str, *, install_globally: bool, force: bool) -> tuple[Path, bool]:
    """Write the skill; returns its path, and whether the file changed. Raises UserError."""
    from gonogo.report.atomic import write_atomically

    base = Path.home() if install_globally else Path()
    folder = base / _SKILL_FOLDERS[target] if target in _SKILL_FOLDERS else Path(target).expanduser()
    path = folder / "gonogo" / "SKILL.md"
    try:
        if path.exists():
            if path.read_text(encoding="utf-8", errors="replace") == text:
                return path, False
            if not force:
                raise UserError(translated("{path} exists with other content: --force overwrites it").format(path=path))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as error:
        raise UserError(
            translated("can't write {path}: {why}").format(path=path, why=error.strerror or error)
        ) from None
    return path, True
