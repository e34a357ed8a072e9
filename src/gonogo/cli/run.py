"""The command ``gonogo run`` and its options."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import Command, Format, Lang
from gonogo.evidence.paths import is_folder
from gonogo.finding import Text, UserError, translated
from gonogo.finding.language import choose_language
from gonogo.report.untrusted import print_error

if TYPE_CHECKING:
    from gonogo.check.findings import CheckResult
    from gonogo.finding import Report


def run(
    command: Command = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the records; with several nodes, on a shared file system. Default: gonogo-runs/TIME-PID.",
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Check the command's files first.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Launch even if the check says NO-GO.")] = False,
    stall_seconds: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Report a hang after this long without progress.")
    ] = 60.0,
    join_seconds: Annotated[
        float,
        typer.Option(
            min=1.0, metavar="SECONDS", help="How long ranks wait for each other to be compared before the first step."
        ),
    ] = 60.0,
    nonfinite: Annotated[
        bool,
        typer.Option(
            "--nonfinite", help="Find the first module whose output or gradient is NaN or infinite. Slows each step."
        ),
    ] = False,
    trackers: Annotated[
        bool,
        typer.Option(
            "--trackers/--no-trackers",
            help="Log the report to W&B, MLflow, TensorBoard or SwanLab if the training uses them.",
        ),
    ] = True,
    report: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Launch nothing: write the report of the records in DIR.")
    ] = None,
    format_: Format = "text",
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report to FILE instead of stderr.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="With --report: also open the report in the browser.")] = False,
    lang: Lang = None,
) -> None:
    """Launch a training with a guard in every rank: told early what is wrong, and afterwards why it died.

    For instance: gonogo run -- deepspeed --num_gpus 8 train.py --deepspeed ds_config.json

    COMMAND runs as ever: its streams, its signals, its exit status. The report goes to standard error and into the
    folder.

    在真实集群上带监护地启动训练：训练前核对各 rank，训练中监视，出错后指出是哪个 rank、为什么。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.report import known_format
        from gonogo.report.output import check_writable

        known_format(format_)
        check_writable(output)
        if report is not None:
            _publish_report(report, command, format_, output, language, open_)
        if not command:
            raise UserError(translated("no command to run: put it after --, for example: gonogo run -- bash launch.sh"))
        from gonogo.check.static_findings import NO_STATIC_FINDINGS, static_findings_of
        from gonogo.guard.injection import GuardOptions
        from gonogo.guard.parent import GuardRequest, default_folder, run_guarded

        checked = _check_command(command, language) if check else None
        if checked is not None and checked.failing:
            _print_report(checked.report, language)
            if not force:
                print_error(_NOT_LAUNCHED, language)
                raise SystemExit(1)
        elif checked is not None and checked.report.findings:
            print_error(_CHECK_HAS_FINDINGS.format(count=len(checked.report.findings)), language)
        request = GuardRequest(
            command,
            folder or default_folder(os.environ),
            GuardOptions(
                stall_seconds=stall_seconds,
                join_seconds=join_seconds,
                nonfinite=nonfinite,
                language=language,
                trackers=trackers,
                python=sys.executable,
            ),
            verdict=checked.report.verdict.value if checked is not None else None,
            files=static_findings_of(checked, os.getcwd()) if checked is not None else NO_STATIC_FINDINGS,
        )
        ended = run_guarded(request, os.environ, language)
        try:
            _publish(request.folder, format_, output, language)
        except KeyboardInterrupt:
            print_error(translated("interrupted"), language)
        except Exception as error:
            _complain_report_not_written(request.folder, error, language)
        raise SystemExit(ended.status)


_NOT_LAUNCHED = translated("not launched: the check says NO-GO. --force launches anyway, --no-check skips the check")

_CHECK_HAS_FINDINGS = translated(
    "the check reported {count}, which don't prevent the launch: gonogo check -- COMMAND shows them"
)


def _check_command(command: list[str], language: str) -> CheckResult | None:
    """Check the command; None if the check itself fails, which must not prevent the launch."""
    from gonogo.check.findings import check as check_files
    from gonogo.check.settings import read_settings
    from gonogo.cli.progress_bars import check_progress

    try:
        with check_progress(language) as on_progress:
            return check_files((), command, settings=read_settings(Path.cwd()), on_progress=on_progress)
    except UserError as error:
        print_error(translated("not checked: {why}").format(why=error.text), language)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        print_error(
            translated("not checked (internal error in gonogo): {why}; launching the command").format(why=why), language
        )
    return None


def _publish_report(
    folder: Path, command: list[str] | None, format_: str, output: Path | None, language: str, open_in_browser: bool
) -> None:
    from gonogo.guard.parent import report_of_folder
    from gonogo.report.output import publish

    if command:
        raise UserError(translated("--report {folder} launches nothing: remove the command").format(folder=folder))
    try:
        report = report_of_folder(folder)
    except OSError as error:
        raise UserError(
            translated("--report {folder}: {why}; give the folder that gonogo run printed when it ended").format(
                folder=folder, why=error.strerror or error
            )
        ) from None
    publish(report, format_, output, language, open_in_browser)
    raise SystemExit(report.verdict.exit_status)


def _publish(folder: Path, format_: str, output: Path | None, language: str) -> None:
    """Write the report to the folder, and to standard error or the output file; a GO without findings is one line."""
    from gonogo.guard.parent import report_of_folder, write_report_files
    from gonogo.report.output import publish

    if not is_folder(folder):
        return  # the folder could not be created, which was already reported
    report = report_of_folder(folder)
    kept = translated("{folder}").format(folder=folder / "report.txt")
    try:
        write_report_files(report, folder, language)
    except OSError as error:
        kept = translated("could not save to {folder}: {why}").format(folder=folder, why=error.strerror or error)
    if output is not None:
        publish(report, format_, output, language)
    elif _is_later_slurm_task(os.environ):
        pass  # the job step's first task prints the report of all tasks
    elif report.findings or format_ != "text" or report.verdict.value != "GO":
        _print_report(report, language, format_)
    print_error(_closing_line(report).format(verdict=report.verdict.value, report=kept), language)


def _closing_line(report: Report) -> Text:
    if report.verdict.value == "GO" and not report.findings:
        return translated("{verdict}: no problems found ({report})")
    return translated("{verdict} ({report})")


def _is_later_slurm_task(environment: os._Environ[str]) -> bool:
    """Whether Slurm started one ``gonogo run`` per task, and this is not the first of them."""
    return environment.get("SLURM_PROCID", "0") != "0" and environment.get("SLURM_NTASKS", "1") != "1"


def _print_report(report: Report, language: str, format_name: str = "text") -> None:
    from gonogo.report import print_to

    try:
        print_to(sys.stderr, report, format_name, language)
    except (OSError, UnicodeError):  # stderr is closed, or can't encode the text: the report is in the folder
        return


def _complain_report_not_written(folder: Path, error: Exception, language: str) -> None:
    print_error(
        translated(
            "could not write the report of {folder} ({what}); try again with gonogo run --report {folder}"
        ).format(folder=folder, what=f"{type(error).__name__}: {error}"),
        language,
    )
