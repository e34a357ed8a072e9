import ast

from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.rehearsal.failures import frame_spans
from gonogo.evidence.rehearsal.record import Failure, RankRecord
from gonogo.hazards.facts.chosen_by_value import is_selected_by_string
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, RehearsalRecord, Run, Script, Text, translated

_BUILTINS = ("int", "float", "complex", "object", "str", "unicode")
_REMOVED_IN_2_0 = (
    "add_docstring", "add_newdoc", "add_newdoc_ufunc", "alltrue", "asfarray", "bool8", "byte_bounds", "bytes0",
    "cast", "cfloat", "clongfloat", "compare_chararrays", "compat", "complex_", "cumproduct", "DataSource",
    "deprecate", "deprecate_with_doc", "disp", "fastCopyAndTranspose", "find_common_type", "float_",
    "format_parser", "get_array_wrap", "geterrobj", "Inf", "Infinity", "infty", "int0", "issctype", "issubclass_",
    "issubsctype", "longcomplex", "longfloat", "lookfor", "mat", "maximum_sctype", "msort", "NaN", "nbytes",
    "NINF", "NZERO", "obj2sctype", "object0", "PINF", "product", "PZERO", "recfromcsv", "recfromtxt", "round_",
    "safe_eval", "sctype2char", "sctypes", "set_numeric_ops", "set_string_function", "seterrobj", "singlecomplex",
    "sometrue", "source", "str0", "string_", "tracemalloc_domain", "uint0", "unicode_", "void0", "who",
)  # fmt: skip
_REMOVED = dict.fromkeys(_BUILTINS, "1.24") | dict.fromkeys(_REMOVED_IN_2_0, "2.0")
"""Names that a release of numpy removed, and that no later one has; tests compare them with numpy's own table."""
_REPLACEMENTS = {
    **{name: name for name in ("int", "float", "complex", "object", "str")},
    "unicode": "str",
    "bool8": "numpy.bool_",
    "float_": "numpy.float64",
    "complex_": "numpy.complex128",
    "string_": "numpy.bytes_",
    "unicode_": "numpy.str_",
    "Inf": "numpy.inf",
    "Infinity": "numpy.inf",
    "infty": "numpy.inf",
    "NaN": "numpy.nan",
    "NINF": "-numpy.inf",
    "PINF": "numpy.inf",
    "product": "numpy.prod",
    "cumproduct": "numpy.cumprod",
    "sometrue": "numpy.any",
    "alltrue": "numpy.all",
    "round_": "numpy.round",
    "mat": "numpy.asmatrix",
}
_SAID_PATTERN = Pattern(
    r"module 'numpy' has no attribute '(?P<name>\w+)'"
    r"|`(?:np|numpy)\.(?P<expired>\w+)` was removed in the NumPy \d+\.\d+ release"
)


class NumpyNameRemoved(Hazard):
    log_words = ("module 'numpy' has no attribute", "was removed in the NumPy")

    def in_script(self, script: Script, run: Run) -> Findings:
        """A name that the run's numpy no longer has, unless the file checks for the name first or defines it."""
        if b"numpy" not in script.source.data:
            return
        numpy = run.environment.packages.get("numpy")
        seen: set[str] = set()
        for node in script.nodes(ast.Attribute):
            name = node.attr
            removed = _REMOVED.get(name)
            if removed is None or name in seen or not run.environment.within("numpy", f">={removed}"):
                continue
            if script.qualified(node) != f"numpy.{name}" or _may_define_name(script, name):
                continue
            seen.add(name)
            yield self.finding(
                _format_cause(
                    script.source.path, name, str(numpy.version) if numpy is not None and numpy.version else None
                ),
                certainty=Certainty.POSSIBLE if is_selected_by_string(script, node, run) else Certainty.LIKELY,
                cure=_choose_cures(name),
                spans=(script.place(node).span(), numpy.place.span() if numpy and numpy.place else None),
            )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """numpy's AttributeError, if numpy and the packages that called it have the declared versions."""
        if "numpy" in record.differing:
            return
        for rank in record.ranks:
            failure = rank.failure
            name = _removed_name_of_failure(failure) if failure is not None else None
            if failure is None or name is None or _passes_through_packages(failure, record.differing):
                continue
            caller = next((frame for frame in reversed(failure.frames) if not _is_numpy_init(frame.path)), None)
            if caller is None:
                continue
            yield self.finding(
                _format_cause(_package_or_path(caller.path), name, _imported_numpy_version(rank)),
                cure=_choose_cures(name),
                spans=frame_spans((failure.innermost("user"), None), (caller, None)),
                ranks=(rank.rank,),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """numpy's AttributeError about a removed name, in a traceback."""
        for error in log.errors_of("AttributeError"):
            name = _removed_name_in_message(error.message)
            if name is not None:
                yield self.log_finding(
                    error, _format_cause(_caller_outside_numpy(error), name, None), cure=_choose_cures(name)
                )
                return


def _removed_name_in_message(message: str) -> str | None:
    match = _SAID_PATTERN.search(message)
    name = (match.group("name") or match.group("expired")) if match is not None else None
    return name if name in _REMOVED else None


def _removed_name_of_failure(failure: Failure) -> str | None:
    last = failure.frames[-1] if failure.frames else None
    own_refusal = last is not None and last.function == "__getattr__" and _is_numpy_init(last.path)
    return _removed_name_in_message(failure.message) if failure.type == "AttributeError" and own_refusal else None


def _is_numpy_init(path: str) -> bool:
    return path.endswith("/numpy/__init__.py")


def _passes_through_packages(failure: Failure, packages: list[str]) -> bool:
    """Whether a frame of the traceback is in one of the packages."""
    modules = {f"/{name.replace('-', '_')}/" for name in packages}
    return any("-packages/" in frame.path and any(one in frame.path for one in modules) for frame in failure.frames)


def _imported_numpy_version(rank: RankRecord) -> str | None:
    return rank.imported.get("numpy") or rank.versions.get("numpy")


def _may_define_name(script: Script, name: str) -> bool:
    """Whether the file defines the name itself, checks whether numpy has it, or catches that it is missing."""
    if any(node.value == name for node in script.nodes(ast.Constant)):  # hasattr, getattr, setattr
        return True
    if any(node.attr == name and isinstance(node.ctx, ast.Store) for node in script.nodes(ast.Attribute)):
        return True
    return any(
        isinstance(inner, ast.Attribute) and inner.attr == name
        for node in script.nodes(ast.Try)
        for inner in ast.walk(node)
    )


def _format_cause(caller: str, name: str, release: str | None) -> Text:
    return translated("{caller} uses numpy.{name}, which numpy removed in {removed}{release}.").format(
        caller=caller,
        name=name,
        removed=_REMOVED[name],
        release=translated("; {release} is installed").format(release=release) if release else Text("", ""),
    )


def _choose_cures(name: str) -> tuple[Text, ...]:
    older = translated('pip install "numpy<{release}"').format(release=_REMOVED[name].removesuffix(".0"))
    if (replacement := _REPLACEMENTS.get(name)) is None:
        return (older,)
    return older, translated("Or, in your own code, use {replacement}").format(replacement=replacement)


def _caller_outside_numpy(error: LoggedError) -> str:
    frames = [frame for frame in error.frames if not _is_numpy_init(frame.path)]
    return _package_or_path(frames[-1].path) if frames else "the program"


def _package_or_path(path: str) -> str:
    """The package of an installed file; the path of any other file."""
    _, installed, inside = path.rpartition("-packages/")
    return inside.partition("/")[0].removesuffix(".py") if installed else path
