"""The commands; each parses its options, calls one function and renders the result.

Nothing heavy is imported here: ``gonogo --version`` and ``--help`` have to be instant, so a command imports what it
needs when it runs.

Exit statuses: 0 GO; 1 NO-GO; 2 unusable arguments or unreadable input; 3 CANNOT-TELL; 70 an internal error of gonogo;
130 interrupted by Ctrl-C (what was known by then has been printed).
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from typer.core import TyperCommand
from typer.models import CommandInfo

from gonogo._version import __version__
from gonogo.cli.bisect import bisect
from gonogo.cli.check import check
from gonogo.cli.command_words import split_command
from gonogo.cli.cure import cure
from gonogo.cli.env import env
from gonogo.cli.exit_status import INTERRUPTED, exit_statuses
from gonogo.cli.help import overview
from gonogo.cli.options import (
    Also,
    AsOf,
    Command,
    ConvertWith,
    Disk,
    Env,
    Every,
    FlightRecorder,
    Format,
    Gpus,
    GradientCheckpointing,
    HostMemory,
    InEnvironment,
    KillBetweenWrites,
    Lang,
    Life,
    MemoryViz,
    MergeWith,
    MicroBatch,
    Nodes,
    Open,
    Output,
    PageFormat,
    Ranks,
    ResumeOn,
    ResumeWith,
    Saves,
    SeqLen,
    ServeWith,
    Set,
    Signal,
    Steps,
    SyntheticBatch,
    SyntheticDeepSpeed,
    Trace,
    Unconfined,
    Yes,
    environment_option,
    split_at_dashes,
    typed_options,
)
from gonogo.cli.plan import plan
from gonogo.cli.prepare import prepare
from gonogo.cli.run import run
from gonogo.finding import UserError, translated
from gonogo.finding.language import choose_language, language_of_locale
from gonogo.report.page import Page, should_use_colour

_BRACED_ARGUMENT_PATTERN = re.compile(r"^\{([^|]*)\}$")  # not {install|show}: with alternatives, the braces stay
_EXAMPLE_MARKER = "For instance:"

app = typer.Typer(
    name="gonogo",
    help="Will this multi-GPU fine-tune run? GO, NO-GO or CANNOT-TELL, before a GPU is rented.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"gonogo {__version__}")
        raise typer.Exit


@app.callback()
def _gonogo(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Will this multi-GPU fine-tune run? GO, NO-GO or CANNOT-TELL, before a GPU is rented.

    多卡微调能不能跑起来？租 GPU 之前先问 gonogo。(--lang zh: 中文报告)
    """


app.command(
    epilog="Exit status: 0 GO, 1 NO-GO, 3 CANNOT-TELL (a likely error, or files that could not be read), 2 "
    "invalid input."
)(check)
app.command(epilog="Exit status: 0 GO, 1 NO-GO, 3 CANNOT-TELL (something could not be queried), 2 unreadable input.")(
    env
)
app.command(epilog="Exit status: 0 a strategy fits, 1 none does, 3 CANNOT-TELL, 2 invalid input.")(plan)


_MACHINE = ("gpus", "nodes", "host_memory", "environment", "with_", "env")
_PRINTING = ("format_", "output", "open_", "lang")
_NOT_REPEATED = (*_MACHINE, *_PRINTING, "command", "set_", "against", "peak_growth")
"""Parameters of ``rehearse`` that the next command has from elsewhere, or not at all: it says how a run is rehearsed,
not how the answer is printed."""


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Exit status: 0 GO, 1 NO-GO, 2 invalid input, 3 CANNOT-TELL, 70 internal error, 130 Ctrl-C.",
)
def rehearse(
    context: typer.Context,
    command: Command = None,
    gpus: Gpus = None,
    nodes: Nodes = None,
    host_memory: HostMemory = None,
    ranks: Ranks = "auto",
    steps: Steps = 2,
    timeout: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Stop a program that takes longer.")
    ] = 600.0,
    environment: InEnvironment = None,
    as_of: AsOf = None,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE==VERSION", help="Use this version of a package. Repeatable."),
    ] = None,
    yes: Yes = False,
    prepare_: Annotated[
        bool,
        typer.Option(
            "--prepare/--no-prepare",
            help="First generate what the launch opens and is not here: models without weights, tokenizers, data.",
        ),
    ] = True,
    env: Env = None,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the raw records in DIR.")] = None,
    memory_viz: MemoryViz = None,
    trace: Trace = None,
    flight_recorder: FlightRecorder = None,
    every: Every = False,
    unconfined: Unconfined = False,
    synthetic_batch: SyntheticBatch = None,
    deepspeed: SyntheticDeepSpeed = None,
    seq_len: SeqLen = None,
    micro_batch: MicroBatch = None,
    gradient_checkpointing: GradientCheckpointing = False,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS|auto", help="Run the ranks on this Ray cluster. Default: on this machine."),
    ] = None,
    set_: Set = None,
    also: Also = None,
    life: Life = None,
    resume_on: ResumeOn = None,
    resume_with: ResumeWith = None,
    kill_between_writes: KillBetweenWrites = False,
    saves: Saves = 1,
    disk: Disk = None,
    signal: Signal = None,
    convert_with: ConvertWith = None,
    merge_with: MergeWith = None,
    serve_with: ServeWith = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Compare with an earlier report (JSON): exit 1 if the verdict got worse or a memory peak grew.",
        ),
    ] = None,
    peak_growth: Annotated[
        float,
        typer.Option(min=0.0, metavar="PERCENT", help="With --against: how much a memory peak may grow, in percent."),
    ] = 2.0,
    format_: Format = "text",
    output: Output = None,
    open_: Open = False,
    lang: Lang = None,
) -> None:
    """Run a training program, as it is, on virtual accelerators: no GPU, no weights.

    For instance: gonogo rehearse --gpus 8xH100-80G --host-memory 1T -- bash launch.sh

    COMMAND is deepspeed …, torchrun …, accelerate launch …, python train.py …, or a shell script that ends in one.
    Without a script and data: gonogo rehearse --synthetic-batch model/ --deepspeed ds.json --gpus 8xH100-80G

    不用 GPU、不用权重，把训练程序原样排练一遍。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.report import known_format
        from gonogo.report.output import check_writable, publish

        known_format(format_)
        check_writable(output)
        environment = environment_option(environment)
        from gonogo.rehearse.synthetic import SyntheticOptions

        synthetic = SyntheticOptions(synthetic_batch, deepspeed, seq_len, micro_batch, gradient_checkpointing)
        command = split_command(synthetic.to_command(command, gpus, nodes, steps) or [])
        if not command:
            raise UserError(
                translated("no command to rehearse: put it after --, for example: gonogo rehearse -- bash launch.sh")
            )
        from gonogo.finding.call import Invocation, machine_options
        from gonogo.rehearse.answer import rehearse_and_report, was_interrupted
        from gonogo.rehearse.automatic_preparation import prepare_and_rehearse
        from gonogo.rehearse.baseline import compare_with_baseline, read_baseline
        from gonogo.rehearse.display import live_display
        from gonogo.rehearse.launch.queued import with_job_from_file
        from gonogo.rehearse.lives import StageCommands, check_life_options, check_save_options, parse_life_stages
        from gonogo.rehearse.ranks.rank_options import AUTO, LIFE_DEFAULT
        from gonogo.rehearse.request import RehearsalRequest
        from gonogo.rehearse.resumed_launch import with_life_of_resume
        from gonogo.rehearse.viewer_files import ViewerFiles
        from gonogo.report.answer.command_placeholders import with_invocation
        from gonogo.trials.what_if.changed_run import rehearse_with
        from gonogo.trials.what_if.setting_changes import read_settings

        commands = StageCommands(convert_with, merge_with, serve_with)
        stages = parse_life_stages(life, resume_on, resume_with, commands, kill_between_writes=kill_between_writes)
        request = RehearsalRequest(
            command=command,
            gpus=gpus,
            nodes=nodes,
            host_memory=host_memory,
            ranks=LIFE_DEFAULT if stages and ranks.strip().lower() == AUTO else ranks,
            steps=steps,
            timeout=timeout,
            environment=environment,
            with_packages=tuple(with_ or ()),
            as_of=as_of,
            keep=keep,
            viewers=ViewerFiles(memory_viz, trace, flight_recorder),
            ray=ray,
            count_work=True,
            every=every,
            yes=yes,
            unconfined=unconfined,
            env=tuple(env or ()),
            life=stages,
            resume_on=resume_on,
            resume_with=resume_with,
            kill_between_writes=kill_between_writes,
            saves=saves,
            disk=disk,
            signal=signal,
            stage_commands=commands,
        )
        check_life_options(stages, ray, has_viewer_output=bool(request.viewers))
        request = with_job_from_file(request)
        if not (set_ or also or synthetic_batch is not None):
            request = with_life_of_resume(request, own_ranks=ranks.strip().lower() == AUTO)
        check_save_options(request.life, saves, disk, signal, kill_between_writes=kill_between_writes)
        earlier = None if against is None else read_baseline(against)
        changed, others = read_settings(set_ or (), "--set"), [read_settings([one], "--also") for one in also or ()]
        if (changed or others) and (stages or synthetic_batch is not None):
            raise UserError(
                translated(
                    "--set and --also change a run's files: they can't be combined with --life or --synthetic-batch"
                )
            )
        with live_display(language) as on_progress:
            at_once = prepare_and_rehearse if prepare_ and synthetic_batch is None else rehearse_and_report
            record, report = rehearse_with(request, changed, others, at_once, on_progress)
        if earlier is not None:
            report = compare_with_baseline(report, earlier, peak_growth)
        launch = () if synthetic_batch is not None else tuple(command)
        machine = machine_options(gpus, nodes, host_memory, environment, with_ or (), env or ())
        report = with_invocation(
            report, Invocation(launch, machine, own_options=typed_options(context, without=_NOT_REPEATED))
        )
        publish(report, format_, output, language, open_)
        if record is not None and was_interrupted(record):
            raise SystemExit(INTERRUPTED)
        raise SystemExit(report.exit_status)


app.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Exit status: 0 everything is present or generated, 3 something is missing or unknown, 2 invalid input.",
)(prepare)


@app.command(epilog="Exit status: 0 nothing wrong, 1 the cause is certain, 3 CANNOT-TELL, 2 unreadable input.")
def diagnose(
    logs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LOG...|-] [-- COMMAND...]",
            help="Logs, folders of logs (all ranks), or - for standard input; after --, the command that was launched.",
        ),
    ] = None,
    project: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with the run's files, checked as by gonogo check.")
    ] = None,
    deepspeed_config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The run's DeepSpeed config (JSON).")
    ] = None,
    launch: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The command or shell script that launched the run.")
    ] = None,
    script: Annotated[Path | None, typer.Option(metavar="FILE", help="The training script.")] = None,
    environment: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Package versions of the run: requirements, pip freeze, or JSON."),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="text|json|markdown|html|sarif|github|junit|pack",
            help="Format of the report; pack: the evidence in at most 6,000 tokens, for a person, a coding agent or a "
            "language model, without anything private.",
        ),
    ] = "text",
    with_pack: Annotated[
        bool, typer.Option("--with-pack", help="With --format json: include the evidence of --format pack.")
    ] = False,
    upstream: Annotated[
        bool,
        typer.Option(
            "--upstream",
            help="Also fetch other releases of the failing package from the index, and say in which a name, an "
            "argument or the line that raised came or went. Nothing of them is run.",
        ),
    ] = False,
    reader: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Also let this language model read the evidence (--format pack), and check what it says. It shows "
            "what will be sent and asks, the first time for each server.",
        ),
    ] = None,
    reader_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The server of --reader, of any kind that speaks OpenAI's protocol: http://127.0.0.1:8000/v1. "
            "Default: OPENAI_BASE_URL, else OpenAI's own.",
        ),
    ] = None,
    reader_timeout: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Give up on the model's answer after this time.")
    ] = 120.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --reader: send the evidence without asking.")] = False,
    gpus: Gpus = None,
    host_memory: HostMemory = None,
    output: Output = None,
    open_: Open = False,
    lang: Lang = None,
) -> None:
    """Explain a run that has died, from its logs: the root cause, the line that shows it, the cure.

    For instance: gonogo diagnose logs/    or: tail -n 500 train.log | gonogo diagnose -

    What is given beside the logs makes the answer surer: COMMAND, which is followed to its files as by gonogo check,
    --project, or single files (config, launch command, script, versions).

    训练挂了？从日志里找出根本原因、证据所在行和解决办法。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        import sys

        from gonogo.report import PACK, known_format
        from gonogo.report.output import check_writable, publish

        known_format(format_, PACK)
        check_writable(output)
        server = None
        if reader is not None:
            from gonogo.diagnose.reader.client import ModelServer

            server = ModelServer(reader, reader_url, reader_timeout)
            server.require_usable()
        elif reader_url is not None:
            raise UserError(translated("--reader-url needs --reader MODEL"))
        logs, command = split_at_dashes(logs or [])
        if not logs:
            if sys.stdin.isatty():
                raise UserError(
                    translated(
                        "no log given: name a file or a folder, or pipe it in, for example: gonogo diagnose train.log"
                    )
                )
            logs = ["-"]
        from gonogo.cli.progress_bars import log_read_progress
        from gonogo.diagnose.findings import read_failure
        from gonogo.finding.call import Invocation, machine_options
        from gonogo.report.answer.command_placeholders import with_invocation

        with log_read_progress(logs, language) as on_bytes:
            failure = read_failure(
                logs,
                deepspeed_config=deepspeed_config,
                launch=launch,
                script=script,
                environment=environment,
                command=command,
                project=project,
                on_bytes=on_bytes,
            )
            report = failure.report()
        if upstream:
            from gonogo.cli.reader import with_upstream_facts

            report = with_upstream_facts(failure, report, language)
        if with_pack or format_ == PACK:
            from gonogo.cli.reader import with_reader_pack

            report = with_reader_pack(failure, report, language)
        if server is not None:
            from gonogo.cli.reader import ReaderOptions, with_model_reading

            options = ReaderOptions(server, yes, command, gpus, host_memory, environment, language)
            report = with_model_reading(failure, report, options)
        report = with_invocation(
            report, Invocation(tuple(command), machine_options(environment=environment), tuple(logs))
        )
        publish(report, format_, output, language, open_)
        raise SystemExit(report.verdict.exit_status)


app.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Exit status: 0 GO with both, 1 NO-GO (found), 2 invalid input, 3 CANNOT-TELL, 130 Ctrl-C.",
)(bisect)

app.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Exit status: 0 GO (unchanged, or cured), 3 CANNOT-TELL (no cure found), 2 invalid input, 130 Ctrl-C.",
)(cure)

app.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Exit status: that of COMMAND (128+N for signal N); 1 if the check says NO-GO, 2 invalid input.",
)(run)


@app.command()
def explain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a hazard, as in reports and `gonogo hazards`.")],
    format_: PageFormat = "text",
    output: Output = None,
    lang: Lang = None,
) -> None:
    """Print a hazard's page: what happens, why, the cure, when it is safe, and the public threads behind it.

    显示某个隐患的说明：现象、原因、解决办法、何时安全、来源。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.cli.explain import find_hazard, write_page
        from gonogo.report import check_page_format
        from gonogo.report.output import check_writable, publish_text

        check_page_format(format_)
        check_writable(output)
        hazard = find_hazard(name)
        publish_text(lambda stream: write_page(stream, hazard, format_, language), output)


@app.command()
def hazards(
    theme: Annotated[
        str | None, typer.Option("--theme", metavar="NAME", help="Only hazards of this theme: device, zero3 ...")
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(
            metavar="config|launch|script|environment|rehearsal|log|run", help="Only hazards that show up there."
        ),
    ] = None,
    new: Annotated[
        str | None,
        typer.Option(
            "--new", metavar="NAME", help="Start a new hazard in a checkout: its page and a failing test case."
        ),
    ] = None,
    code: Annotated[
        bool, typer.Option("--code", help="With --new: also a Python class for what the page can't decide.")
    ] = False,
    format_: PageFormat = "text",
    output: Output = None,
    lang: Lang = None,
) -> None:
    """List the hazards that gonogo knows; or begin a new one.

    列出 gonogo 认识的全部隐患；或新建一个。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        if new is not None or code:
            from gonogo.cli.new_hazard import new_hazard

            sys.stdout.write(new_hazard(new, theme, code=code, language=language))
            return
        from gonogo.cli.explain import filter_hazards, write_list
        from gonogo.report import check_page_format
        from gonogo.report.output import check_writable, publish_text

        check_page_format(format_)
        check_writable(output)
        chosen = filter_hazards(theme, stage)
        publish_text(lambda stream: write_list(stream, chosen, format_, language), output)


class _UnbracedCommand(TyperCommand):
    """A command that shows required arguments without braces in its usage line; Typer adds them."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [_BRACED_ARGUMENT_PATTERN.sub(r"\1", piece) for piece in super().collect_usage_pieces(ctx)]


_LAZY_COMMANDS = {
    "compare": "gonogo.cli.compare",
    "doctor": "gonogo.cli.doctor",
    "gpus": "gonogo.cli.gpus",
    "mcp": "gonogo.cli.mcp.command",
    "sbatch": "gonogo.cli.sbatch",
    "schema": "gonogo.cli.schemas.schema_command",
    "server": "gonogo.cli.lsp.command",
    "skills": "gonogo.cli.skills",
    "ui": "gonogo.cli.ui.command",
}
"""Commands imported only if one of them is called or all are listed, so that other commands start faster."""


def _register_lazy_commands(command_name: str | None) -> None:
    """Register the called command if it is in :data:`_LAZY_COMMANDS`, or all of them if the word is no command."""
    others = {_command_name(command) for command in app.registered_commands}
    for name, module in _LAZY_COMMANDS.items():
        listed = command_name not in _LAZY_COMMANDS and command_name not in others
        if name not in others and (command_name == name or listed):
            found = import_module(module)
            app.command(name=name, context_settings=getattr(found, "SETTINGS", None))(getattr(found, name))
    for command in app.registered_commands:
        command.cls = _UnbracedCommand


def main() -> None:
    """Entry point of the ``gonogo`` command."""
    with exit_statuses(language_of_locale(os.environ)):
        sys.argv[1:] = _with_language_option_after_command(sys.argv[1:])
        words, requested = _extract_language_option(sys.argv[1:])
        language = choose_language(requested, os.environ)
        if (
            overview.asks_for_overview(words) and "_GONOGO_COMPLETE" not in os.environ
        ):  # a shell requests its completion script
            from gonogo.report.output import to_stdout

            to_stdout(lambda stream: overview.print_overview(Page(stream, colour=should_use_colour(stream)), language))
            return
        _register_lazy_commands(next(iter(sys.argv[1:2]), None))
        every = app.registered_commands
        called = [command for command in every if _command_name(command) in sys.argv[1:2]]
        # If a command is named, Typer builds only that one: building all of them takes a tenth of a check's time.
        app.registered_commands = called or every
        try:
            if {"-h", "--help"} & set(_words_before_dashes(words)):
                _localize_help(language)
            else:
                app(prog_name="gonogo")
        finally:
            app.registered_commands = every


def _localize_help(language: str) -> None:
    """Run ``--help`` with the help texts in the user's language."""
    from typer.main import get_group

    group = get_group(app)
    for command in group.commands.values():
        translate_help(command, language)
    group(prog_name="gonogo")


def _words_before_dashes(words: list[str]) -> list[str]:
    """The words before ``--``, where the user's own command begins."""
    return words[: words.index("--")] if "--" in words else words


def _with_language_option_after_command(words: list[str]) -> list[str]:
    """``--lang zh rehearse …`` as ``rehearse --lang zh …``: each command has the option, and the group none."""
    count = 1 if words[:1] and words[0].startswith("--lang=") else 2 if words[:1] == ["--lang"] else 0
    option, rest = words[:count], words[count:]
    if not option or not rest:
        return words
    return [rest[0], *option, *rest[1:]] if not rest[0].startswith("-") else rest


def _extract_language_option(words: list[str]) -> tuple[list[str], str | None]:
    """The words without ``--lang``, and its value."""
    before = _words_before_dashes(words)
    for number, word in enumerate(before):
        if word.startswith("--lang="):
            return [*words[:number], *words[number + 1 :]], word.partition("=")[2]
        if word == "--lang" and number + 1 < len(before):
            return [*words[:number], *words[number + 2 :]], words[number + 1]
    return words, None


def _command_name(command: CommandInfo) -> str | None:
    return command.name or getattr(command.callback, "__name__", None)


def translate_help(command: Any, language: str) -> None:
    """Translate the ``--help`` of a click command, which may come from Typer's own copy of click."""
    command.help = _paragraphs_in_language(command.help or "", language)
    if language != "zh":
        return
    chinese = option_help_in_chinese()
    command.epilog = None  # the exit statuses, which are documented in Chinese elsewhere
    for parameter in command.params:
        help_text = getattr(parameter, "help", None)
        if isinstance(help_text, str):
            parameter.help = chinese.get(help_text, help_text)


def option_help_in_chinese() -> dict[str, str]:
    """The Chinese help of arguments and options, by the English one."""
    return msgspec.json.decode((Path(__file__).parent / "help" / "chinese.json").read_bytes(), type=dict[str, str])


def _paragraphs_in_language(text: str, language: str) -> str:
    """The help paragraphs for a language: in Chinese, the Chinese ones and the examples; in English, all others."""
    every = text.split("\n\n")
    chinese = [one for one in every if any("\u4e00" <= character <= "\u9fff" for character in one)]
    if language != "zh" or not chinese:
        return "\n\n".join(one for one in every if one not in chinese)
    examples = [
        one.replace(f"{_EXAMPLE_MARKER} ", "例如：").replace("    or: ", "    或：")
        for one in every
        if _EXAMPLE_MARKER in one
    ]
    return "\n\n".join([*chinese, *examples])
