"""The command ``gonogo mcp``."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import Lang
from gonogo.finding import UserError, translated
from gonogo.finding.install import install_hint
from gonogo.finding.language import choose_language


def mcp(
    allow: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="A folder to work in; nothing outside is read. Repeatable. Default: the current one."
        ),
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="PORT", help="Streamable HTTP on 127.0.0.1:PORT/mcp, instead of stdio.")
    ] = None,
    no_run: Annotated[
        bool,
        typer.Option("--no-run", help="Disable rehearse, cure and prepare, which run programs that a client names."),
    ] = False,
    lang: Lang = None,
) -> None:
    """Serve check, prepare, rehearse, diagnose, plan, cure, explain and hazards to coding agents, as an MCP server.

    For instance: claude mcp add gonogo -- gonogo mcp --allow my_project/

    把 gonogo 的命令作为 MCP 工具提供给编程助手。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.cli.serving.folders import Folders

        folders = Folders(allow or [Path.cwd()], _HOW_TO_ALLOW, "--allow")
        port = None if http is None else _parse_port(http)
        try:
            from gonogo.cli.mcp.server import make_server
        except ModuleNotFoundError as error:
            if (error.name or "gonogo").partition(".")[0] == "gonogo":
                raise
            raise UserError(
                translated("gonogo mcp needs the MCP SDK: {install}").format(install=install_hint("mcp"))
            ) from None
        server, jobs = make_server(folders, runs=not no_run)
        try:
            if port is None:
                server.run("stdio")
            else:
                print(f"gonogo mcp: http://127.0.0.1:{port}/mcp", file=sys.stderr, flush=True)
                server.run("streamable-http", host="127.0.0.1", port=port)
        finally:
            jobs.end_all()


_HOW_TO_ALLOW = translated("start gonogo mcp with --allow to permit it")


def _parse_port(text: str) -> int:
    match = re.fullmatch(r"(?:(?:127\.0\.0\.1|localhost):)?(\d{1,5})", text)
    if match is None or not 1 <= int(match[1]) <= 65535:
        raise UserError(
            translated(
                "--http {text}: must be a local port, for example --http 8765; it is not reachable from other machines"
            ).format(text=repr(text))
        )
    return int(match[1])
