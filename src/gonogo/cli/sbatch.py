"""The command ``gonogo sbatch``, which checks a job and then submits it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import Lang
from gonogo.finding import UserError, translated
from gonogo.finding.language import choose_language

SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""sbatch's own options are passed on to it unparsed."""


def sbatch(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[SBATCH OPTIONS] SCRIPT [ARGS]...", help="Arguments for sbatch.")
    ] = None,
    force: Annotated[bool, typer.Option("--gonogo-force", help="Submit even if the check says NO-GO.")] = False,
    lang: Lang = None,
) -> None:
    """Check a job with all that it names, then submit it with sbatch; NO-GO is not submitted.

    For instance: gonogo sbatch --nodes 2 train.sbatch

    先检查作业及其用到的文件，再用 sbatch 提交；NO-GO 时不提交。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        import sys

        from gonogo.check.findings import check as check_files
        from gonogo.check.settings import read_settings
        from gonogo.report import print_to
        from gonogo.report.untrusted import print_error

        if not arguments:
            raise UserError(translated("no job to submit: give one, for example: gonogo sbatch --nodes 2 train.sbatch"))
        program = shutil.which("sbatch")
        if program is None:
            raise UserError(translated("sbatch is not on PATH: is this a login node?"))
        try:
            checked = check_files((), ["sbatch", *arguments], settings=read_settings(Path.cwd()))
        except UserError as error:  # a job that gonogo can't read is submitted all the same
            print_error(translated("not checked: {why}").format(why=error.text), language)
        else:
            if checked.report.findings:
                print_to(sys.stderr, checked.report, "text", language)
            if checked.failing and not force:
                print_error(translated("not submitted: the check says NO-GO; --gonogo-force submits anyway"), language)
                raise SystemExit(1)
        sys.stderr.flush()
        os.execv(program, ["sbatch", *arguments])
