"""Tables of numbers that pandas reads: which columns the code names, what it makes of each, and how many there are.

A time series is a date and as many numbers as the launch states for the model (``--enc_in 321``); other tables have the
columns that the code takes by name, each a number, a class or a date according to what is done with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from gonogo.evidence.field import Field
from gonogo.evidence.rehearsal.record import Failure
from gonogo.evidence.run import Run
from gonogo.evidence.script.identifiers import last_name, split_identifier
from gonogo.finding import translated
from gonogo.prepare.inferred.read_scope import ReadScope, scopes_at_failure
from gonogo.prepare.named_inputs import argument_node, resolve_option
from gonogo.prepare.required_inputs import RequiredInput

TABLE_FORMAT = "table"
TABLE_SUFFIXES = (".csv", ".tsv")
_READERS = ("*.read_csv", "*.read_table")
_NUMBER_SIGNS = ("*.to_numpy", "*.astype", "torch.tensor", "torch.from_numpy", "torch.FloatTensor", "*.to_datetime",
                 "*.fit_transform", "*.fit", "numpy.array", "numpy.asarray")  # fmt: skip
_DATE_WORDS = frozenset({"date", "datetime", "timestamp"})
_CLASS_WORDS = frozenset({"label", "labels", "class", "category", "target_class"})
_SERIES_OPTIONS = ("enc_in", "c_out", "dec_in", "n_features", "num_features", "n_vars", "num_vars", "input_dim",
                   "in_dim", "num_series", "n_series", "num_nodes", "in_features", "n_channels")  # fmt: skip
_MAX_SERIES = 5000
_MAX_CELLS = 12_000_000
_DATED_ROWS = 4096
_PLAIN_ROWS = 512
_TABLE_GENERATED = translated("a generated table with the columns that the code reads: {columns}")


def infer_table_input(path: str, failure: Failure, runs: Sequence[Run]) -> RequiredInput | None:
    """A missing file as a table of numbers, if pandas reads it and the code turns it into numbers; else None."""
    if not path.lower().endswith(TABLE_SUFFIXES):
        return None
    for scope in scopes_at_failure(failure):
        if any(scope.calls(*_READERS)):
            columns = table_columns(scope, runs[0])
            if not columns:
                return None
            wanted = RequiredInput("data", path, "", path, "can-be-made", format=TABLE_FORMAT)
            wanted.columns = tuple(f"{name}:{kind}" for name, kind in columns.items())
            wanted.why = _TABLE_GENERATED.format(columns=columns_text(columns))
            wanted.rows = _row_count(columns)
            return wanted
    return None


def _row_count(columns: dict[str, str]) -> int:
    return max(1, min(_DATED_ROWS if "date" in columns.values() else _PLAIN_ROWS, _MAX_CELLS // len(columns)))


def columns_text(columns: Iterable[str]) -> str:
    """The names of columns, long lists cut: ``date, OT, 0, 1 … (321 in all)``."""
    names = list(columns)
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:6])} … ({len(names)})"


def table_columns(scope: ReadScope, run: Run) -> dict[str, str]:
    """The columns that the scope takes from a table, each with its kind; empty if it makes no numbers of them."""
    if any(scope.calls("*tokenizer", "*.tokenizer")) or not _converts_to_numbers(scope):
        return {}
    dates = set(_date_columns(scope, run))
    found: dict[str, str] = {}
    for name in (*dates, *_columns_taken_by_name(scope, run)):
        found.setdefault(
            name, "date" if name in dates or _DATE_WORDS & set(split_identifier(name)) else _column_kind(scope, name)
        )
    for name in _derived_columns(scope):
        if name not in dates:
            found.pop(name, None)
    numbers = sum(kind == "float" for kind in found.values())
    if any(isinstance(node, ast.Attribute) and node.attr == "columns" for node in ast.walk(scope.node)):
        for number in range(max(_series_count(run) - numbers, 0)):
            found.setdefault(str(number), "float")
    return found


def _converts_to_numbers(scope: ReadScope) -> bool:
    return any(scope.calls(*_NUMBER_SIGNS)) or any(
        isinstance(node, ast.Attribute) and node.attr == "values" for node in ast.walk(scope.node)
    )


def _series_count(run: Run) -> int:
    """How many time series the launch's options state for the model (``--enc_in``); 0 if none does."""
    stated = [name for name in _SERIES_OPTIONS if str(run.arguments.get(name).value).isdecimal()]
    stated.sort(key=lambda name: run.arguments.source_of(name) == "script")  # the launch's own come first
    return min(int(str(run.arguments.get(stated[0]).value)), _MAX_SERIES) if stated else 0


def _date_columns(scope: ReadScope, run: Run) -> Iterator[str]:
    for call in scope.calls("*.to_datetime"):
        for node in ast.walk(call.node.args[0]) if call.node.args else ():
            if isinstance(node, ast.Subscript):
                yield from _strings_in_expression(scope, node.slice, run)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr != "values":
                yield node.attr
    for call in scope.calls(*_READERS):
        yield from _strings_in_expression(scope, call.keyword_node("parse_dates"), run)


_NAMING_CALLS = {
    "set_index": "keys",
    "sort_values": "by",
    "groupby": "by",
    "pop": "item",
    "remove": "",
    "drop": "columns",
}


def _columns_taken_by_name(scope: ReadScope, run: Run) -> Iterator[str]:
    """The columns that are taken by name, in the order of the script."""
    for node in ast.walk(scope.node):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_table_like(scope, node.value):
            yield from _strings_in_expression(scope, node.slice, run)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _NAMING_CALLS:
            call = scope.script.call_at(node)
            keyword = _NAMING_CALLS[node.func.attr]
            yield from _strings_in_expression(scope, argument_node(call, 0, *((keyword,) if keyword else ())), run)
    for call in scope.calls(*_READERS):
        for keyword in ("usecols", "index_col"):
            yield from _strings_in_expression(scope, call.keyword_node(keyword), run)


_OPTION_HOLDERS = frozenset({"environ", "args", "config", "cfg", "opt", "options", "kwargs", "params", "parameters"})


def _is_table_like(scope: ReadScope, node: ast.expr) -> bool:
    """Whether a string in brackets after this can be a column: not of an environment, a configuration or options."""
    literal = isinstance(scope.script.bound_to(node), ast.Dict | ast.List | ast.Tuple)
    return not literal and last_name(node) not in _OPTION_HOLDERS


def _strings_in_expression(scope: ReadScope, node: ast.expr | None, run: Run) -> Iterator[str]:
    """The strings in an expression: constants, lists of them, and options by their value (``args.target``)."""
    if node is None:
        return
    field: Field = scope.script.field(node)
    if field.known:
        values = field.value if isinstance(field.value, (list, tuple)) else (field.value,)
        yield from (value for value in values if type(value) is str)
    elif isinstance(node, ast.List | ast.Tuple):
        for one in node.elts:
            yield from _strings_in_expression(scope, one, run)
    elif isinstance(node, ast.BinOp):
        yield from _strings_in_expression(scope, node.left, run)
        yield from _strings_in_expression(scope, node.right, run)
    elif isinstance(node, ast.Name | ast.Attribute):
        bound = scope.script.bound_to(node)
        if bound is not node:
            yield from _strings_in_expression(scope, bound, run)
        elif last_name(node) not in ("columns", "values") and (given := resolve_option(run, last_name(node))):
            yield given
        elif default := _parameter_default(scope, last_name(node)):
            yield default


def _parameter_default(scope: ReadScope, name: str) -> str:
    """The default of a parameter of that name in the scope: ``target='OT'``."""
    for node in ast.walk(scope.node):
        if isinstance(node, ast.arguments):
            given = [*node.posonlyargs, *node.args]
            for arg, default in zip(reversed(given), reversed(node.defaults), strict=False):
                if arg.arg == name and isinstance(default, ast.Constant) and isinstance(default.value, str):
                    return default.value
    return ""


def _derived_columns(scope: ReadScope) -> set[str]:
    """The columns that the code itself adds to the table before it reads them."""
    stored: dict[str, int] = {}
    loaded: dict[str, int] = {}
    for node in ast.walk(scope.node):
        if isinstance(node, ast.Subscript) and isinstance(name := scope.script.field(node.slice).value, str):
            lines = loaded if isinstance(node.ctx, ast.Load) else stored
            lines[name] = min(lines.get(name, node.lineno), node.lineno)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
            loaded[node.attr] = min(loaded.get(node.attr, node.lineno), node.lineno)
    return {name for name, line in stored.items() if loaded.get(name, line + 1) > line}


def _column_kind(scope: ReadScope, name: str) -> str:
    """``label`` for whole numbers (``table["churned"].astype(int)``) and classes by name, ``float`` for others."""
    if _CLASS_WORDS & set(split_identifier(name)):
        return "label"
    for call in scope.calls("*.astype"):
        of = call.receiver
        whole = call.argument(0).value in ("int", "int64", "int32") or last_name(argument_node(call, 0, "dtype")) in (
            "int", "int32", "int64", "long",
        )  # fmt: skip
        if whole and isinstance(of, ast.Subscript) and scope.script.field(of.slice).string == name:
            return "label"
    return "float"


_TOO_SHORT_PATTERN = re.compile(
    r"__len__\(\) should return >= 0|num_samples should be a positive|Found array with 0 sample|"
    r"positional indexers? (?:is|are) out-of-bounds|index \S+ is out of bounds for axis 0"
)
_NOT_NUMBERS_PATTERN = re.compile(
    r"could not convert string to float|invalid literal for int\(\)|can't convert np.ndarray of type numpy.object_|"
    r"unsupported operand type|Could not convert .* to numeric"
)


def refine_tables(failure: Failure | None, required_inputs: Sequence[RequiredInput]) -> bool:
    """Change generated tables as the program's error asks: longer ones, or numbers in place of texts."""
    tables = [one for one in required_inputs if one.format == TABLE_FORMAT and one.state == "made" and not one.stated]
    if failure is None or not tables:
        return False
    changed = False
    for one in tables:
        if _TOO_SHORT_PATTERN.search(failure.message) and one.rows * len(one.columns) <= _MAX_CELLS:
            one.rows *= 4
            changed = True
        elif _NOT_NUMBERS_PATTERN.search(failure.message) and any(name.endswith(":text") for name in one.columns):
            one.columns = tuple(f"{name.removesuffix(':text')}:float" if name.endswith(":text") else name
                                for name in one.columns)  # fmt: skip
            changed = True
    return changed
