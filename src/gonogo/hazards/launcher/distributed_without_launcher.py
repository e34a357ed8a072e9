import ast
from collections.abc import Iterator

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places
from gonogo.hazards.facts.launch_facts import is_plain_python
from gonogo.hazards.rule import (
    Certainty,
    Findings,
    Hazard,
    Launch,
    Pattern,
    RehearsalRecord,
    Run,
    Script,
    Text,
    translated,
)


class EnvironmentSetting(msgspec.Struct, frozen=True, eq=False):
    """A variable that a script sets; ``default`` if a value from outside takes precedence (``setdefault``)."""

    name: str
    value: Field
    node: ast.AST
    statement: ast.stmt | None
    default: bool = False


_LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_VARIABLE_NOT_SET_PATTERN = Pattern(r"env:// rendezvous: environment variable (\w+) expected, but not set")
_VARIABLE_KEY_PATTERN = Pattern(rf"^'({'|'.join(_LAUNCHER_VARIABLES)})'$")
_OTHER_LAUNCH_WORDS = (b"mp.spawn", b"multiprocessing", b"notebook_launcher", b"import ray", b"mpi_discovery")


class DistributedWithoutLauncher(Hazard):
    log_words = ("env:// rendezvous", *(f"KeyError: '{name}'" for name in _LAUNCHER_VARIABLES))

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Plain python, with a script that always joins the process group or reads one of its variables."""
        if not run.scripts or not is_plain_python(launch, _LAUNCHER_VARIABLES):
            return
        if any(word in script.source.data for script in run.scripts for word in _OTHER_LAUNCH_WORDS):
            return
        settings = [setting.name for script in run.scripts for setting in environment_settings(script)]
        if any(name in settings for name in _LAUNCHER_VARIABLES):
            return
        script = run.scripts[0]
        found = next(
            (found for found in _uses_of_launcher_variables(script) if _is_always_reached(script, found[0])), None
        )
        if found is None:
            return
        node, variable = found
        yield self.finding(
            self.texts["cause"].format(path=script.path, variable=variable),
            certainty=Certainty.LIKELY,  # the user's shell may have them
            cure=self.cures,
            spans=(launch.place.span(), script.place(node).span(translated("requested here"))),
        )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """The exception of torch's rendezvous or of ``os.environ``."""
        for failed in failed_ranks(record):
            failure = failed.failure
            missing = _VARIABLE_NOT_SET_PATTERN.search(failure.message) if failure.type == "ValueError" else None
            if failure.type == "KeyError" and any("environ" in frame.text for frame in failure.frames):
                missing = _VARIABLE_KEY_PATTERN.search(failure.message)
            if missing is not None:
                yield self.finding(
                    self._format_cause(missing.group(1)), spans=failure_places(failure), ranks=failed.ranks
                )

    def in_log(self, log: FailureLog) -> Findings:
        """The same exceptions; a KeyError is certain only if its traceback shows an access to the environment."""
        for error in log.errors_of("ValueError", "KeyError"):
            missing = (_VARIABLE_NOT_SET_PATTERN if error.type == "ValueError" else _VARIABLE_KEY_PATTERN).search(
                error.message
            )
            sure = error.type == "ValueError" or any("environ" in frame.code for frame in error.frames)
            if missing is not None and (sure or not error.frames):
                certainty = Certainty.CERTAIN if sure else Certainty.LIKELY
                yield self.log_finding(error, self._format_cause(missing.group(1)), certainty=certainty)
                return

    def _format_cause(self, variable: str) -> Text:
        return self.texts["variable_missing_cause"].format(variable=variable)


def _uses_of_launcher_variables(script: Script) -> Iterator[tuple[ast.AST, str]]:
    """The places in a script that fail without a launcher's variables, and the first missing variable."""
    for node in script.nodes(ast.Subscript):
        if isinstance(node.ctx, ast.Load) and script.qualified(node.value) == "os.environ":
            name = script.field(node.slice).string
            if name in _LAUNCHER_VARIABLES:
                yield node, name
    for call in script.calls("torch.distributed.init_process_group"):
        method = call.keyword("init_method")
        if method.absent:
            method = call.argument(1)
        by_environment = method.absent or (method.string or "").startswith("env://")
        if by_environment and all(call.keyword(name).absent for name in ("rank", "world_size", "store")):
            yield call.node, "RANK"


def _is_always_reached(script: Script, node: ast.AST, max_depth: int = 3) -> bool:
    """Whether the script always gets to a node, as far as it shows: without condition and outside ``try``."""
    if any(isinstance(around, ast.Try) and around.handlers for around in script.ancestors(node)):
        return False
    if not all(_always_holds(test) for test in script.guarded_by(node)):
        return False
    function = script.enclosing_function(node)
    if function is None:
        return script.enclosing_class(node) is None
    if script.enclosing_class(node) is not None or max_depth == 0:
        return False
    return any(
        _is_always_reached(script, call, max_depth - 1)
        for call in script.nodes(ast.Call)
        if isinstance(call.func, ast.Name) and call.func.id == function.name
    )


def _always_holds(test: ast.expr) -> bool:
    """Whether a test only asks if this is the main module, or if a process group exists yet."""
    if any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test)):
        return True
    calls = [node.func for node in ast.walk(test) if isinstance(node, ast.Call)]
    names = [call.attr if isinstance(call, ast.Attribute) else "" for call in calls]
    return "is_initialized" in names and set(names) <= {"is_initialized", "is_available"}


def environment_settings(script: Script) -> tuple[EnvironmentSetting, ...]:
    """The variables that a script sets, in order; those whose names are unknown are left out."""
    found = [*_assigned_variables(script), *_variables_set_by_calls(script)]
    return tuple(sorted(found, key=lambda setting: script.place(setting.node).start))


def _assigned_variables(script: Script) -> Iterator[EnvironmentSetting]:
    for node in script.nodes(ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and script.qualified(target.value) == "os.environ":
                name = script.field(target.slice).string
                if name is not None:
                    yield EnvironmentSetting(name, script.field(node.value), node, node)


def _variables_set_by_calls(script: Script) -> Iterator[EnvironmentSetting]:
    for call in script.calls("os.environ.setdefault", "os.putenv"):
        name = call.argument(0).string
        if name is not None:
            default = call.name == "os.environ.setdefault"
            yield EnvironmentSetting(name, call.argument(1), call.node, script.statement(call.node), default)
    for call in script.calls("os.environ.update"):
        first = call.node.args[0] if call.node.args else None
        pairs: list[tuple[str | None, ast.expr]] = [(each.arg, each.value) for each in call.node.keywords]
        if isinstance(first, ast.Dict):
            for key, value in zip(first.keys, first.values, strict=True):
                pairs.append((script.field(key).string if key is not None else None, value))
        for name, value in pairs:
            if name is not None:
                yield EnvironmentSetting(name, script.field(value), value, script.statement(call.node))
