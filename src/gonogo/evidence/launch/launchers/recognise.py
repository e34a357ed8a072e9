"""Which launcher a command calls, and which program that launcher is to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from gonogo.evidence.document.source_file import Place
from gonogo.evidence.field import Field
from gonogo.evidence.launch.command_line import Options, OptionTable, names
from gonogo.evidence.launch.launchers.options import ACCELERATE, DEEPSPEED, DOCKER_RUN, MPIRUN, SRUN, TORCHRUN
from gonogo.evidence.launch.option_parsing import parse_known, parse_options
from gonogo.evidence.launch.words import ProgramKind, PythonCommand, is_python, python_command, without_prefix
from gonogo.evidence.shell.text import ShellWord
from gonogo.finding import Text

_TABLES: dict[str, OptionTable] = {
    "deepspeed": DEEPSPEED,
    "torchrun": TORCHRUN,
    "torch.distributed.launch": TORCHRUN,
    "accelerate": ACCELERATE,
}
_COMMANDS = {
    "deepspeed": "deepspeed",
    "deepspeed.pt": "deepspeed",
    "ds": "deepspeed",
    "torchrun": "torchrun",
    "accelerate-launch": "accelerate",
    "swift": "swift",
    "megatron": "swift",
    "llamafactory-cli": "llamafactory",
    "lmf": "llamafactory",
    "axolotl": "axolotl",
    "trl": "trl",
}
_MODULES = {
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate",
    "swift.cli.main": "swift",
    "llamafactory.cli": "llamafactory",
    "axolotl.cli.main": "axolotl",
    "trl.cli": "trl",
}
FRAMEWORK_COMMANDS: dict[str, frozenset[str]] = {
    "swift": frozenset({"sft", "pt", "rlhf"}),
    "llamafactory": frozenset({"train"}),
    "axolotl": frozenset({"train"}),
    "trl": frozenset({"sft", "dpo", "grpo", "kto", "reward", "rloo"}),
}
"""The subcommands that train."""
_NO_PROGRAM = names(
    """
    pip venv http.server json.tool site ensurepip zipfile timeit cProfile compileall ipykernel build
    torch.utils.collect_env deepspeed.env_report bitsandbytes huggingface_hub tensorboard.main
    """
)
_UNKNOWN = "\0"
_LAUNCHER_UNKNOWN = Text("the program that starts it can't be told", "无法确定启动它的程序")
# Programs of the form `NAME SUBCOMMAND [options] COMMAND`, with the options that take a word.
_RUNNERS: dict[tuple[str, str], frozenset[str]] = {
    ("uv", "run"): names("--with --python -p --extra --group --project --env-file --directory"),
    ("poetry", "run"): frozenset(),
    ("pdm", "run"): frozenset(),
    ("pipenv", "run"): frozenset(),
    ("conda", "run"): frozenset({"-n", "--name", "-p", "--prefix", "--cwd"}),
    ("mamba", "run"): frozenset({"-n", "--name", "-p", "--prefix", "--cwd"}),
    ("nsys", "profile"): frozenset({"-o", "--output", "-t", "--trace", "-s", "--sample", "-c", "--capture-range"}),
}
_PLAIN_WRAPPERS = {"sudo": frozenset({"-u", "--user", "-g"}), "unbuffer": frozenset(), "chrt": frozenset()}


class Called(msgspec.Struct, frozen=True):
    """A call of a launcher."""

    launcher: str
    launcher_options: Options
    options: Options
    program: Field
    program_kind: ProgramKind
    program_word: ShellWord | None = None
    slurm: Options | None = None
    """``srun``'s own options."""
    mpirun: Options | None = None
    environment: dict[str, tuple[str | None, ShellWord]] = {}
    """Variables that stand before the command, or are given to ``env``."""
    removed: tuple[str, ...] = ()
    cleared: bool = False
    chdir: str | None = None
    in_container: bool = False
    script: ShellWord | None = None
    """A shell script that the command runs: it is followed."""
    code: ShellWord | None = None
    """What ``bash -c`` is given."""
    script_arguments: tuple[ShellWord, ...] = ()
    from_input: bool = False
    """``python -``: the program stands in a heredoc."""


def called(words: Sequence[ShellWord]) -> Called | None:
    """What a command calls; None where it starts no program that could train."""
    rest = list(words)
    environment: dict[str, tuple[str | None, ShellWord]] = {}
    removed: tuple[str, ...] = ()
    cleared = in_container = False
    slurm = mpirun = None
    chdir = None
    for _ in range(12):
        texts = [word.value if word.value is not None else _partly(word) for word in rest]
        plain = without_prefix(texts)
        taken = len(rest) - len(plain.words)
        for word in rest[:taken]:
            text = word.value if word.value is not None else _partly(word)
            name, equals, _value = text.partition("=")
            if equals and name in plain.environment:
                known = None if word.value is None else plain.environment[name]
                environment[name] = (known, word)
        removed, cleared, chdir = (*removed, *plain.removed), cleared or plain.cleared, plain.chdir or chdir
        rest = rest[taken:]
        if not rest:
            return None
        name = PurePath(rest[0].value or "").name
        following = rest[1].value if len(rest) > 1 else None
        if name == "srun":
            slurm, left = parse_known(rest[1:], SRUN)
        elif name in ("mpirun", "mpiexec"):
            mpirun, left = _mpirun(rest[1:])
        elif name in ("docker", "podman", "nvidia-docker") and following in ("run", "exec"):
            _options, after = parse_known(rest[2:], DOCKER_RUN)
            left, in_container = after[1:], True
        elif name in ("singularity", "apptainer") and following in ("exec", "run"):
            left, in_container = (
                tuple(_after_options(rest[2:], frozenset({"-B", "--bind", "--env", "-H", "--pwd"})))[1:],
                True,
            )
        elif (name, following or "") in _RUNNERS:
            left = tuple(_after_options(rest[2:], _RUNNERS[name, following or ""]))
        elif name in _PLAIN_WRAPPERS:
            left = tuple(_after_options(rest[1:], _PLAIN_WRAPPERS[name]))
        else:
            break
        rest = list(left)
        if not rest:
            return None
    answer = _called(rest)
    if answer is None:
        return None
    return msgspec.structs.replace(
        answer,
        slurm=slurm,
        mpirun=mpirun,
        environment=environment,
        removed=removed,
        cleared=cleared,
        chdir=chdir,
        in_container=in_container,
    )


def _partly(word: ShellWord) -> str:
    """What is known of a word that can't be told: enough to see an assignment, and that it is no option's end."""
    first = word.pieces[0].text if word.pieces else None
    return f"{first or ''}{_UNKNOWN}"


def _after_options(words: Sequence[ShellWord], with_value: frozenset[str]) -> list[ShellWord]:
    rest = list(words)
    while rest and rest[0].value is not None and rest[0].value.startswith("-"):
        option = rest.pop(0).value
        if option == "--":
            break
        if option in with_value and rest:
            rest.pop(0)
    return rest


def _mpirun(words: Sequence[ShellWord]) -> tuple[Options, tuple[ShellWord, ...]]:
    rest = list(words)
    kept: list[ShellWord] = []
    while rest and rest[0].value is not None and rest[0].value.startswith("-"):
        option = rest.pop(0)
        name = (option.value or "").lstrip("-")
        if name in ("mca", "gmca", "x", "genv", "env"):
            del rest[: 1 if name == "x" else 2]
            continue
        kept.append(option)
        if MPIRUN.name_of(f"--{name}") in MPIRUN.with_value and rest:
            kept.append(rest.pop(0))
    double = [msgspec.structs.replace(word) for word in kept]
    options, _left = parse_known(double, MPIRUN)
    return options, tuple(rest)


def _called(words: list[ShellWord]) -> Called | None:
    first = words[0]
    if first.value is None:
        return _unknown_launcher(words)
    name = PurePath(first.value).name
    if name in ("bash", "sh", "zsh", "dash", "sbatch", "ksh"):
        return _shell_script(name, words[1:])
    if name.endswith((".sh", ".slurm", ".sbatch")):
        return script_call(words)
    if name == "accelerate":
        if len(words) < 2 or words[1].value != "launch":
            return None
        return _launched("accelerate", words[2:])
    if name in _COMMANDS:
        return _launched(_COMMANDS[name], words[1:])
    if is_python(name) or name in ("pythonw", "ipython", "pypy3"):
        return _python(words[1:])
    if name.endswith(".py"):
        return _program("python", Options(), "script", words)
    return None


def _shell_script(name: str, words: list[ShellWord]) -> Called | None:
    rest = list(words)
    if name == "sbatch":
        slurm, left = parse_known(rest, SRUN)
        if not left:
            return None
        return _script(script=left[0], script_arguments=left[1:], slurm=slurm)
    while rest and rest[0].value is not None and rest[0].value.startswith("-"):
        option = rest.pop(0).value or ""
        if "c" in option and not option.startswith("--"):
            if not rest:
                return None
            return _script(code=rest[0], script_arguments=tuple(rest[2:]))
        if option in ("-o", "-O", "--rcfile", "--init-file") and rest:
            rest.pop(0)
    if not rest or rest[0].value == "-":
        return _script(from_input=True)
    return _script(script=rest[0], script_arguments=tuple(rest[1:]))


def _script(**what: Any) -> Called:
    return Called("shell", Options(), Options(), Field.missing(), "script", **what)


def script_call(words: Sequence[ShellWord]) -> Called:
    """A command whose first word is a shell script."""
    return _script(script=words[0], script_arguments=tuple(words[1:]))


def _unknown_launcher(words: list[ShellWord]) -> Called | None:
    """``$LAUNCHER train.py …`` where the variable can't be told."""
    for index, word in enumerate(words[1:8], start=1):
        if word.value is not None and word.value.endswith(".py"):
            own = parse_options(words[:index])
            hidden = Options(own.options, own.positional, complete=False, end=own.end, words=words[:index])
            return _program("unknown", hidden, "script", words[index:])
    return None


def _python(words: list[ShellWord]) -> Called | None:
    texts = [word.value if word.value is not None else _partly(word) for word in words]
    command: PythonCommand = python_command(texts)
    rest = words[len(words) - len(command.arguments) :] if command.arguments else []
    if command.kind == "module":
        if command.target in _MODULES:
            launcher = _MODULES[command.target]
            if command.target == "accelerate.commands.accelerate_cli":
                rest = rest[1:] if rest and rest[0].value == "launch" else []
            return _launched(launcher, rest) if rest else None
        if command.target.partition(".")[0] in _NO_PROGRAM or command.target in _NO_PROGRAM:
            return None
        at = len(words) - len(command.arguments) - 1
        return _program("python", Options(), "module", [words[at], *rest], command.target)
    if command.kind == "script":
        at = len(words) - len(command.arguments) - 1
        return _program("python", Options(), "script", words[at:])
    if command.kind == "stdin":
        return Called("python", Options(), parse_options(rest), Field.missing(), "script", from_input=True)
    return None


def _launched(launcher: str, words: list[ShellWord]) -> Called | None:
    if launcher in FRAMEWORK_COMMANDS:
        return _framework(launcher, words)
    own, rest = parse_known(words, _TABLES[launcher])
    rest = _unread_options(own, rest)
    if rest != tuple(words[len(own.words) :]):
        skipped = words[: len(words) - len(rest)]
        own = Options(own.options, own.positional, complete=False, end=own.end, words=skipped)
    if not rest:
        all_known = own.complete and all(word.value is not None for word in words)
        program = Field.missing() if all_known else Field.not_known()
        return Called(launcher, own, Options(end=own.end), program, "script")
    kind: ProgramKind = "module" if own.get("module").known else "script"
    if own.get("no_python").known and is_python(PurePath(rest[0].value or "").name):
        inner = _python(list(rest[1:]))
        if inner is not None:
            return msgspec.structs.replace(inner, launcher=launcher, launcher_options=own)
    return _program(launcher, own, kind, rest)


def _unread_options(own: Options, rest: tuple[ShellWord, ...]) -> tuple[ShellWord, ...]:
    """Past words such as ``$DISTRIBUTED_ARGS`` that can't be told and stand where the launcher's options do."""
    index = 0
    while index < len(rest) and rest[index].value is None and not rest[index].quoted:
        text = rest[index].place.text
        following = rest[index + 1].value if index + 1 < len(rest) else None
        if not text.startswith("$") or following is None or following.startswith("-"):
            break
        if not following.endswith(".py") and "/" not in following:
            break
        index += 1
    return rest[index:]


def _program(
    launcher: str, own: Options, kind: ProgramKind, words: Sequence[ShellWord], target: str | None = None
) -> Called:
    word = words[0]
    if word.value is None:
        program = Field.not_known(word.place, word.reason)
    else:
        program = Field.of(target if target is not None else word.value, word.place, word.reason)
    end = word.place
    options = parse_options(words[1:], None if len(words) > 1 else Place(end.source, end.end, end.end))
    return Called(launcher, own, options, program, kind, word)


def _framework(launcher: str, words: list[ShellWord]) -> Called | None:
    """``swift sft …``, ``llamafactory-cli train …``: the subcommand is the program."""
    if not words:
        return None
    command = words[0].value
    if command is not None and command not in FRAMEWORK_COMMANDS[launcher]:
        return None
    answer = _program(launcher, Options(), "framework", words)
    if launcher in ("trl", "axolotl"):
        # They hand the launcher's own options on; both readings are of the same words.
        return msgspec.structs.replace(answer, launcher_options=answer.options)
    return answer


__all__ = ["FRAMEWORK_COMMANDS", "Called", "called"]
