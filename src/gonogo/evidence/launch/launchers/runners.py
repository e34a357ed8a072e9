"""Programs that run another program: mpirun, containers, ``uv run``, ``conda run``, Ray jobs, profilers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath

import msgspec

from gonogo.evidence.launch.command_line import CommandOptions, OptionTable, split_names
from gonogo.evidence.launch.option_parsing import parse_known_options
from gonogo.evidence.shell.text import ShellWord

_MPIRUN_OPTIONS = OptionTable(
    split_names("np n c N npernode map_by bind_to host H hostfile machinefile x mca ppn hosts f wdir"),
    split_names("allow_run_as_root oversubscribe tag_output report_bindings quiet v verbose"),
    {name: name for name in ("np", "n", "c", "N", "npernode", "H", "x", "mca", "ppn", "hosts", "f", "v")},
    abbreviations=False,
)
"""Open MPI's and MPICH's ``mpirun``; of the two words that ``-mca`` takes, the caller skips the second."""
_DOCKER_RUN_OPTIONS = OptionTable(
    split_names(
        """
        gpus name volume env env_file workdir user network net ipc pid shm_size memory memory_swap cpus cpuset_cpus
        device entrypoint hostname publish runtime ulimit mount label log_driver log_opt restart add_host cap_add
        security_opt group_add platform pull tmpfs uts volumes_from
        """
    ),
    split_names("rm interactive tty detach privileged init read_only"),
    {
        "v": "volume",
        "e": "env",
        "w": "workdir",
        "u": "user",
        "p": "publish",
        "m": "memory",
        "l": "label",
        "h": "hostname",
        "i": "interactive",
        "t": "tty",
        "d": "detach",
    },
)
"""``docker run`` (version 27)."""
# Programs of the form `NAME SUBCOMMAND [options] COMMAND`, with the options that take a word.
_RUNNER_OPTIONS: dict[tuple[str, str], frozenset[str]] = {
    ("uv", "run"): split_names("--with --python -p --extra --group --project --env-file --directory"),
    ("poetry", "run"): frozenset(),
    ("pdm", "run"): frozenset(),
    ("pipenv", "run"): frozenset(),
    ("conda", "run"): frozenset({"-n", "--name", "-p", "--prefix", "--cwd"}),
    ("mamba", "run"): frozenset({"-n", "--name", "-p", "--prefix", "--cwd"}),
    ("nsys", "profile"): frozenset({"-o", "--output", "-t", "--trace", "-s", "--sample", "-c", "--capture-range"}),
}
_RAY_JOB_OPTIONS = split_names(
    """
    --address --job-id --submission-id --runtime-env --runtime-env-json --working-dir --metadata-json
    --entrypoint-num-cpus --entrypoint-num-gpus --entrypoint-memory --entrypoint-resources
    --entrypoint-label-selector --verify --headers --log-style --log-color
    """
)
"""``ray job submit``'s options with a value (Ray 2.40 to 2.50)."""
_APPTAINER_OPTIONS = frozenset({"-B", "--bind", "--env", "-H", "--pwd"})
_PLAIN_WRAPPERS = {"sudo": frozenset({"-u", "--user", "-g"}), "unbuffer": frozenset(), "chrt": frozenset()}


class WrappedCommand(msgspec.Struct, frozen=True):
    """The command that another program (``mpirun``, ``docker run``) runs, and its container, if any."""

    words: tuple[ShellWord, ...]
    in_container: bool = False
    image: ShellWord | None = None
    """The container's image; None if the container exists already (``docker exec``)."""
    environment: dict[str, str] = {}
    """Variables that a Ray job's runtime environment sets."""


def split_mpirun_command(words: Sequence[ShellWord]) -> tuple[CommandOptions, tuple[ShellWord, ...]]:
    """mpirun's own options, and the command that follows them."""
    rest = list(words)
    kept: list[ShellWord] = []
    while rest and rest[0].value is not None and rest[0].value.startswith("-"):
        option = rest.pop(0)
        name = (option.value or "").lstrip("-")
        if name in ("mca", "gmca", "x", "genv", "env"):
            del rest[: 1 if name == "x" else 2]
            continue
        kept.append(option)
        if _MPIRUN_OPTIONS.option_name_of(f"--{name}") in _MPIRUN_OPTIONS.with_value and rest:
            kept.append(rest.pop(0))
    double = [msgspec.structs.replace(word) for word in kept]
    options, _left = parse_known_options(double, _MPIRUN_OPTIONS)
    return options, tuple(rest)


def wrapped_command(name: str, words: Sequence[ShellWord]) -> WrappedCommand | None:
    """The command that the program ``name`` runs; None if it isn't one of these programs.

    ``words`` are those after the name.
    """
    following = words[0].value if words else None
    if name in ("docker", "podman", "nvidia-docker") and following in ("run", "exec"):
        _options, after = parse_known_options(words[1:], _DOCKER_RUN_OPTIONS)
        return WrappedCommand(after[1:], True, after[0] if after and following == "run" else None)
    if name in ("singularity", "apptainer") and following in ("exec", "run"):
        after = tuple(_skip_options(words[1:], _APPTAINER_OPTIONS))
        return WrappedCommand(after[1:], True, after[0] if after else None)
    if (job := parse_ray_job_submit([name, *(word.value for word in words)])) is not None:
        return WrappedCommand(tuple(words[job[0] - 1 :]), environment=job[1])
    if (name, following or "") in _RUNNER_OPTIONS:
        return WrappedCommand(tuple(_skip_options(words[1:], _RUNNER_OPTIONS[name, following or ""])))
    if name in _PLAIN_WRAPPERS:
        return WrappedCommand(tuple(_skip_options(words, _PLAIN_WRAPPERS[name])))
    return None


def parse_ray_job_submit(words: Sequence[str | None]) -> tuple[int, dict[str, str]] | None:
    """``ray job submit … -- COMMAND``: how many words come before COMMAND, and the variables that it gets.

    The variables are ``env_vars`` of ``--runtime-env-json``, as far as known. None if it is another command.
    """
    if not words or PurePath(words[0] or "").name != "ray" or list(words[1:3]) != ["job", "submit"]:
        return None
    start = 3 + _length_of_options(words[3:], _RAY_JOB_OPTIONS)
    variables: dict[str, str] = {}
    for word, following in pairwise(words[3:start]):
        name, equals, value = (word or "").partition("=")
        text = value if equals else following
        if name == "--runtime-env-json" and text:
            variables = _environment_variables(text)
    return start, variables


def _environment_variables(runtime_environment: str) -> dict[str, str]:
    try:
        found = msgspec.json.decode(runtime_environment)
    except msgspec.DecodeError:
        return {}
    variables = found.get("env_vars") if isinstance(found, dict) else None
    return {name: one for name, one in variables.items() if isinstance(one, str)} if isinstance(variables, dict) else {}


def _skip_options(words: Sequence[ShellWord], options_with_value: frozenset[str]) -> list[ShellWord]:
    return list(words[_length_of_options([word.value for word in words], options_with_value) :])


def _length_of_options(words: Sequence[str | None], options_with_value: frozenset[str]) -> int:
    """How many words are options with their values, with the ``--`` that ends them."""
    index = 0
    while index < len(words) and (word := words[index]) is not None and word.startswith("-"):
        index += 1
        if word == "--":
            break
        if word in options_with_value:
            index += 1
    return min(index, len(words))
