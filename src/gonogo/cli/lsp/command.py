"""The command ``gonogo server``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import Lang
from gonogo.finding import UserError, translated
from gonogo.finding.install import install_hint
from gonogo.finding.language import choose_language


def server(
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Use stdin and stdout (the default; accepted for editors that pass it).")
    ] = False,
    lang: Lang = None,
) -> None:
    """Serve editors: what gonogo check finds while one types, with hover, completion and fixes (LSP, over stdio).

    VS Code: editors/vscode. Neovim and Helix: docs/editors.md.

    编辑器语言服务：边写边检查，提供悬停说明、补全和修复。
    """
    with exit_statuses(choose_language(lang, os.environ)):
        try:
            from gonogo.cli.lsp.server import serve
        except ModuleNotFoundError as error:
            if (error.name or "gonogo").partition(".")[0] == "gonogo":
                raise
            raise UserError(
                translated("gonogo server needs pygls: {install}").format(install=install_hint("lsp"))
            ) from None
        serve(lang)
