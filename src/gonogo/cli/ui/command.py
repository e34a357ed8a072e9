"""The command ``gonogo ui``."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import Lang
from gonogo.finding import UserError, translated
from gonogo.finding.install import install_hint
from gonogo.finding.language import choose_language

_LOOPBACK_ADDRESS = "127.0.0.1"
_SERVER_STARTED = translated(
    "gonogo ui: {address}\nAnyone with this address has access: don't share it. Ctrl-C stops the server."
)


def ui(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="Folder to serve; nothing outside is read. Default: the current folder."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, metavar="N", help="Port on 127.0.0.1. Default: a free one."),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address without opening a browser.")] = False,
    lang: Lang = None,
) -> None:
    """Show gonogo in the browser: choose what to launch, check, rehearse, plan, cure; paste a log; look at reports.

    For instance: gonogo ui my_project/

    在浏览器中使用 gonogo：选择启动脚本，检查、排练、规划、修复；粘贴日志；查看报告。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.cli.serving.folders import Folders

        way_out = translated("start gonogo ui with a folder that contains it")
        folders = Folders([folder or Path.cwd()], way_out)
        try:
            from uvicorn import Config, Server

            from gonogo.cli.ui.app import make_app
        except ModuleNotFoundError as error:
            if (error.name or "gonogo").partition(".")[0] == "gonogo":
                raise
            raise UserError(
                translated("gonogo ui needs Starlette and uvicorn: {install}").format(install=install_hint("ui"))
            ) from None
        listening = _listening_socket(port or 0)
        token = secrets.token_urlsafe(24)
        address = f"http://{_LOOPBACK_ADDRESS}:{listening.getsockname()[1]}/{token}/"
        app = make_app(folders, token, language)
        quiet = Config(app, log_level="error", access_log=False, lifespan="on", timeout_graceful_shutdown=1)
        print(_SERVER_STARTED.format(address=address).in_language(language), file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="gonogo-ui-") as private:
            if not no_open:
                webbrowser.open(_redirect_page(address, Path(private)))
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends the server
                Server(quiet).run(sockets=[listening])


def _redirect_page(address: str, folder: Path) -> str:
    """A private file that redirects to the address, since other users can read a browser's command line."""
    path = folder / "gonogo.html"
    path.write_text(f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">')
    return path.as_uri()


def _listening_socket(port: int) -> socket.socket:
    """A listening socket on localhost. Raises UserError if the port is taken."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((_LOOPBACK_ADDRESS, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise UserError(
            translated("--port {port}: {why}; without --port a free port is chosen").format(
                port=port, why=error.strerror or error
            )
        ) from None
    return made
