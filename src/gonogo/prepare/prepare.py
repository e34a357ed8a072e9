"""``gonogo prepare``: reads a launch's files, generates what is missing, and runs a first worker to find the rest."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from gonogo.check.runs import gather_runs_of_inputs
from gonogo.check.settings import CheckSettings, read_settings
from gonogo.evidence.environment.own_package import (
    CONSOLE_SCRIPT_PATTERN,
    NON_PACKAGE_FOLDERS,
    ProjectPackage,
    python_packages_in_folder,
)
from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.prepared import FOLDER, PreparedStandIns, is_data_file_url, parent_of_prepared, read_prepared
from gonogo.evidence.published.datasets import published_dataset
from gonogo.evidence.published.models import published_model
from gonogo.evidence.rehearsal.failures import shorten_exception_message
from gonogo.evidence.rehearsal.record import Failure, MissingInput, RankRecord, UnsupportedPart
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Skipped, Text, UserError, translated
from gonogo.finding.remedy import Purpose
from gonogo.prepare.columns import add_column_kinds, columns_read_in, csv_separator
from gonogo.prepare.environment_mismatch import missing_packages
from gonogo.prepare.folder import add_to_prepared_folder, check_prepared_folder, write_prepared_folder
from gonogo.prepare.generated.rows import TEMPLATE
from gonogo.prepare.inferred.array_inputs import infer_array_input, refine_arrays, replace_rows_by_arrays
from gonogo.prepare.inferred.checkpoint_inputs import infer_checkpoint_input
from gonogo.prepare.inferred.table_inputs import infer_table_input, refine_tables
from gonogo.prepare.listing import (
    list_data_set,
    list_indexed_tokens,
    list_model,
    list_required_inputs,
    row_length_in_tokens,
    similar_names_text,
)
from gonogo.prepare.make import MAX_ROWS, generate_files
from gonogo.prepare.missing_imports import undeclared_imports
from gonogo.prepare.named_inputs import SHELL_VARIABLE_OPTION, to_absolute_path
from gonogo.prepare.packages.full_environment import existing_environment
from gonogo.prepare.project_requirements import FILE, ProjectPackages, find_package_providing, project_packages
from gonogo.prepare.required_inputs import NamedInput, PrepareOptions, RequiredInput
from gonogo.prepare.stub_packages import package_missing_in, unmentioned_stub_packages
from gonogo.prepare.tested_paths import path_of_failed_check
from gonogo.prepare.unset_variables import unset_variable
from gonogo.prepare.walked_folders import (
    infer_image_folder,
    is_image_folder_missing,
    missing_prefixes,
    needs_other_suffix,
    unmatched_patterns,
)

_PACKAGE_STUB_TEMPLATE = """\
__path__ = [{folder!r}]
__file__ = {folder!r} + "/__init__.py"
with open(__file__, encoding="utf-8") as _file:
    exec(compile(_file.read(), __file__, "exec"))
"""

Look = Callable[[], RankRecord]
_MAX_PASSES = 24
_MAX_MESSAGE_LENGTH = 400
"""The length to which the error of a worker is cut: the message of an exception can go on for pages."""
_MISSING_FILE_PATTERN = re.compile(
    r"(?:No such file or directory|Unable to find|doesn't exist|not found)[^'\"]*['\"]([^'\"\n]+)['\"]"
)
_TESTED_PATH_PATTERN = re.compile(r"['\"]([^'\"\s]*/[^'\"\s]*)['\"] (?:does not|doesn't) exist")
_MISSING_COLUMN_PATTERN = re.compile(
    r"^'(\w+)'$|^['\"]?Column (?:name )?\[?'?(\w+)'?\]? (?:not in|doesn't exist)|has no column '?(\w+)'?"
)
_MISSING_MODEL_PATTERN = re.compile(r"the model (\S+) is not in the Hugging Face cache")
_DEFAULT_ROWS = 64
"""The factor on the chosen rows if they turn out to be too few for one step."""
_TOO_FEW_ROWS_PATTERN = re.compile(
    r"(?:test|train)_size=(\d+) should be either positive and smaller than the number of samples"
    r"|Index (\d+) out of range for dataset of size"
)
_UNKNOWN_SPLIT_PATTERN = re.compile(r"Unknown split \"(\w+)\"")
_MODEL_UNKNOWN = translated("--model {name}: not in gonogo's table of published models{close}")


class EnvironmentOptions(msgspec.Struct, frozen=True):
    """The user's choice of packages: a file of versions, a date and ``NAME==VERSION``, or the installed ones."""

    file: Path | None = None
    as_of: str | None = None
    with_packages: tuple[str, ...] = ()
    as_installed: bool = False


class Preparation(msgspec.Struct):
    """What a launch opens, and where the generated parts are."""

    wanted: list[RequiredInput]
    tokens: int
    rows: int
    folder: str | None = None
    """The folder that was written, or None."""
    looked: str | None = None
    """How the first worker ended; None if none was run."""
    ended: tuple[str, str] | None = None
    """The error with which it ended, in English and Chinese; None if it ran to its end."""
    environment: str | None = None
    """The project's file whose packages it lacked; None if it didn't fail for lack of packages."""
    skipped: list[Skipped] = []
    packages: ProjectPackages = msgspec.field(default_factory=ProjectPackages)
    not_as_asked: list[tuple[Text, Text]] = []
    """Packages that rehearsals won't have as requested, as (what, why)."""
    package_notes: list[Text] = []

    @property
    def is_complete(self) -> bool:
        """Whether everything that the launch opens is here or generated; unknown, and False, if a worker failed."""
        return self.ended is None and all(one.state in ("here", "made") for one in self.wanted)


def parse_prepare_options(rows: int, tokens: int | None, models: Sequence[str]) -> PrepareOptions:
    """The options on the command line: ``--model NAME`` for all unknown models, ``--model PATH=NAME`` for one.

    Raises UserError for a name that isn't in the table.
    """
    chosen: dict[str, str] = {}
    for word in models:
        path, equals, name = word.rpartition("=")
        if published_model(name) is None:
            raise UserError(_MODEL_UNKNOWN.format(name=name, close=similar_names_text(name)))
        chosen[path if equals else "*"] = name
    return PrepareOptions(rows, tokens, chosen)


_MISSING_MODULE_PATTERN = re.compile(r"No module named '(\w+)")

Launches = tuple[Sequence[Run], Sequence[Skipped]]


def prepare(
    command: Sequence[str],
    options: PrepareOptions,
    environment_options: EnvironmentOptions,
    *,
    write: bool,
    probe: Look | None,
    launches: Launches | None = None,
) -> Preparation:
    """List what a command opens; with ``write`` generate what is missing into a folder beside it.

    ``launches`` are the command's launches, if they have been read already. ``probe`` runs a first worker; what it
    lacks is added and generated until it lacks nothing more. Raises UserError for a command that starts nothing, and
    if the folder can't be written.
    """
    folder = Path.cwd()
    parent = parent_of_prepared(folder)
    target = check_prepared_folder(parent) if write else None
    options = _with_earlier_choices(options, read_prepared(parent / FOLDER))
    runs, skipped = launches or read_launches(command)
    wanted = list_required_inputs(runs, folder, options)
    packages = project_packages(runs, folder)
    if environment_options.file is not None or environment_options.as_installed:
        packages = ProjectPackages(own=packages.own)
    packages.absent = unmentioned_stub_packages(packages, command, runs)
    done = Preparation(
        wanted, row_length_in_tokens(runs, options), options.rows, skipped=list(skipped), packages=packages
    )
    if target is None:
        return done
    tried: set[tuple[str, ...]] = set()
    for _ in range(_MAX_PASSES):
        files, table = generate_files(done.wanted, target, done.tokens, options)
        files, table = _with_packages(files, table, target, packages, environment_options)
        if files or table != PreparedStandIns():
            write_prepared_folder(parent, files, table)
            done.folder = str(target.name)
        if probe is None:
            break
        record = probe()
        done.looked = record.outcome
        done.ended = _failure_texts(record)
        done.environment = next(filter(None, map(_environment_file, record.unsupported)), None)
        if record.failure is not None:
            if (needed := package_missing_in(record.failure, packages.absent)) is not None:  # the run has it after all
                packages.absent = tuple(name for name in packages.absent if name != needed)
                continue
            if (
                packages.own is None
                and (own := find_package_providing(_module_not_found(record.failure), folder)) is not None
            ):
                packages.own = own
                continue
            lacking = () if environment_options.as_installed else missing_packages(record.failure)
            if [name for name in lacking if packages.add(name)]:
                for name in undeclared_imports(runs, packages, folder):  # or each would take a worker of its own
                    packages.add(name)
                continue
        rows = _options_with_enough_rows(record, done.wanted, options)
        if rows != options.rows_of and max(rows.values()) <= MAX_ROWS:
            done.rows, options = max(rows.values()), msgspec.structs.replace(options, rows_of=rows)
            continue
        if refine_arrays(record.failure, done.wanted, tried) or refine_tables(record.failure, done.wanted):
            continue
        if (
            replace_rows_by_arrays(record, runs, done.wanted)
            or _is_missing_split_added(record, done.wanted)
            or needs_other_suffix(record.failure, done.wanted)
        ):
            continue
        more, columns = _inputs_from_record(record, runs, command, done.wanted, options)
        if not more and columns == options.columns:
            if record.outcome == "completed":  # it has opened everything with the variables that are set
                done.wanted = [
                    one for one in done.wanted if one.state != "unknown" and one.format != SHELL_VARIABLE_OPTION
                ]
            break
        options = msgspec.structs.replace(options, columns=columns)
        done.wanted = _merge_inputs(done.wanted, more, columns, [one for run in runs for one in run.scripts])
    _record_version_differences(done, folder)
    return done


def _environment_file(unsupported: UnsupportedPart) -> str | None:
    """The project's file with whose packages it could be rehearsed; None if other packages wouldn't help."""
    remedy = unsupported.remedy
    if remedy is None or remedy.purpose is not Purpose.BUILD_ENVIRONMENT:
        return None
    return remedy.value_of("--environment")


def _module_not_found(failure: Failure) -> set[str]:
    match = _MISSING_MODULE_PATTERN.match(failure.message) if failure.type.endswith("ModuleNotFoundError") else None
    return {match[1]} if match is not None else set()


def _record_version_differences(preparation: Preparation, folder: Path) -> None:
    """Record how the environment differs from what was requested, if it has been created already."""
    parent = parent_of_prepared(folder)
    table = read_prepared(parent / FOLDER)
    if table is None or not table.environment:
        return
    file = Path(os.path.normpath((Path(FOLDER) if parent == folder else parent / FOLDER) / table.environment))
    with contextlib.suppress(UserError):
        made = existing_environment(file, table.with_packages, table.as_of)
        if made is not None:
            preparation.not_as_asked, preparation.package_notes = list(made.skipped), list(made.notes)


def prepare_models(models: Sequence[str], *, write: bool) -> Preparation:
    """The folders of the models in ``--model [PATH=]NAME``, without a command; with ``write`` they are generated.

    Raises UserError for a name that isn't in the table, and if the folder can't be written.
    """
    folder = Path.cwd()
    target = check_prepared_folder(folder) if write else None
    options = parse_prepare_options(0, None, models)
    names = [path if equals else name for path, equals, name in (word.rpartition("=") for word in models)]
    wanted = [list_model(name, "", folder, options, asked=True) for name in dict.fromkeys(names)]
    done = Preparation(wanted, tokens=0, rows=0)
    if target is not None:
        files, table = generate_files(wanted, target, 0, options)
        if files:
            done.folder = add_to_prepared_folder(folder, files, table).name
    return done


def _with_earlier_choices(options: PrepareOptions, earlier: PreparedStandIns | None) -> PrepareOptions:
    """The options with the models that the user chose in an earlier preparation of the same folder."""
    if earlier is None or "*" in options.models:
        return options
    return msgspec.structs.replace(options, models={**earlier.chosen, **options.models})


def _with_packages(
    files: dict[str, bytes],
    table: PreparedStandIns,
    target: Path,
    packages: ProjectPackages,
    environment_options: EnvironmentOptions,
) -> tuple[dict[str, bytes], PreparedStandIns]:
    """The generated files and table, with the environment and the project's own package for rehearsals."""
    if environment_options.file is not None:
        table = msgspec.structs.replace(table, environment=str(environment_options.file.absolute()))
    elif packages.lines and packages.differs_from_installed:
        files = {**files, FILE: packages.requirements_file()}
        table = msgspec.structs.replace(table, environment=FILE, absent=packages.absent)
    if table.environment:
        table = msgspec.structs.replace(
            table, as_of=environment_options.as_of, with_packages=environment_options.with_packages
        )
    if packages.own is not None:
        instead = redirect_own_modules(packages.own, packages.has)
        files = {**files, **distribution_files(packages.own), **instead}
        source = str((target / "project" / "code" if instead else packages.own.source).absolute())
        table = msgspec.structs.replace(table, source=source)
    return files, table


def read_launches(command: Sequence[str]) -> Launches:
    """The runs in a command's files, and what of them wasn't read. Raises UserError if it isn't a launch."""
    settings = CheckSettings()
    with contextlib.suppress(UserError):
        settings = read_settings(Path.cwd())
    gathered = gather_runs_of_inputs([], command, settings=settings, use_installed=True)
    return [run for run in gathered.runs if run.launch is not None], gathered.skipped


def _failure_texts(record: RankRecord) -> tuple[str, str] | None:
    if record.outcome == "completed":
        return None
    if record.user_error is not None:
        english, chinese = record.user_error
        return _one_line(english), _one_line(chinese)
    for one in record.unsupported:
        return _one_line(f"{one.what}: {one.why}"), _one_line(f"{one.what}：{one.why_zh or one.why}")
    if record.failure is not None:
        text = _one_line(f"{record.failure.type}: {record.failure.message}")
        return text, text
    return None


def _one_line(text: str) -> str:
    return shorten_exception_message(" ".join(text.split()), _MAX_MESSAGE_LENGTH)


def _inputs_from_record(
    record: RankRecord,
    runs: Sequence[Run],
    command: Sequence[str],
    required_inputs: Sequence[RequiredInput],
    options: PrepareOptions,
) -> tuple[list[RequiredInput], dict[str, tuple[str, ...]]]:
    """What a worker turned out to need in addition: missing inputs, and columns that rows lack."""
    folder = Path.cwd()
    known = {one.key for one in required_inputs if one.state != "unknown"}
    found = [
        required_inputs
        for one in _merge_model_requests(record.missed)
        for required_inputs in _missing_inputs(one, runs, folder, options)
    ]
    failure = record.failure
    columns = dict(options.columns)
    if failure is not None and record.outcome != "completed":
        text = failure.message
        tested = path_of_failed_check(failure, command, folder)
        if tested is not None:
            model = list_model(tested, "", folder, options)
            pictures = infer_image_folder(runs[0], tested)
            found += [model] if model.state == "can-be-made" else [pictures] if pictures is not None else []
        if match := _MISSING_FILE_PATTERN.search(text):
            pictures = infer_image_folder(runs[0], match[1]) if is_image_folder_missing(failure) else None
            found.append(pictures or _infer_input_at_failure(match[1], failure, runs, required_inputs, options))
        elif failure.type == "FileNotFoundError" and (match := _TESTED_PATH_PATTERN.search(text)):
            model = list_model(match[1], "", folder, options)
            found.append(
                model
                if model.state == "can-be-made"
                else _infer_input_at_failure(match[1], failure, runs, required_inputs, options)
            )
        for pattern in unmatched_patterns(record, folder):
            found.append(_infer_input_at_failure(pattern, failure, runs, [*required_inputs, *found], options))
        found += [list_indexed_tokens(one, "", one) for one in missing_prefixes(record, folder)]
        if match := _MISSING_MODEL_PATTERN.match(text):
            found.append(list_model(match[1], "", folder, options, asked=True))
        of_rows = failure.type in ("KeyError", "ValueError") and unset_variable(failure) is None
        if of_rows and (key := _MISSING_COLUMN_PATTERN.search(text)):
            name = next(part for part in key.groups() if part)
            made = [one for one in required_inputs if one.kind == "data" and one.state == "made"]
            if made and name not in columns.get("*", ()):
                columns["*"] = (*columns.get("*", ()), name)
    keys = {one.key for one in required_inputs}
    return [one for one in found if one.key not in (keys if one.state == "unknown" else known)], columns


def _options_with_enough_rows(
    record: RankRecord, required_inputs: Sequence[RequiredInput], options: PrepareOptions
) -> dict[tuple[str, str], int]:
    """``options.rows_of`` with enough rows for a program that ended because it had too few.

    Only the dataset that the failing statement names gets them; all generated ones if it names none.
    """
    failure = record.failure
    none = record.empty_pass and not record.steps
    if failure is None and not none:
        return options.rows_of
    opened = [one for one in required_inputs if one.kind == "data" and one.state == "made"]
    opened = _opened_data_sets(failure, required_inputs) if failure is not None else opened
    match = _TOO_FEW_ROWS_PATTERN.search(failure.message) if failure is not None else None
    if match is not None:
        rows = 2 * (int(match[1]) + 1) if match[1] else int(match[2]) + 1
    elif (
        none or _is_division_by_zero(failure)
    ) and not options.rows_of:  # fewer rows than a batch of all ranks: no step
        rows = _DEFAULT_ROWS * options.rows
    else:
        return options.rows_of
    return {**options.rows_of, **{one.key: rows for one in opened if options.rows_of.get(one.key, 0) < rows}}


def _is_division_by_zero(failure: Failure | None) -> bool:
    return failure is not None and failure.type == "ZeroDivisionError"


def _opened_data_sets(failure: Failure, required_inputs: Sequence[RequiredInput]) -> list[RequiredInput]:
    """The generated datasets that the failing statement names; all of them if it names none."""
    made = [one for one in required_inputs if one.kind == "data" and one.state == "made"]
    named = texts_in_failing_statement(failure)
    return [one for one in made if one.name in named] or made


def _is_missing_split_added(record: RankRecord, required_inputs: Sequence[RequiredInput]) -> bool:
    """Whether the program needed a split that generated rows lacked, and that has been added now.

    A published dataset keeps its own splits.
    """
    match = _UNKNOWN_SPLIT_PATTERN.search(record.failure.message) if record.failure is not None else None
    if record.failure is None or match is None:
        return False
    lacking = [
        one
        for one in _opened_data_sets(record.failure, required_inputs)
        if one.path is None and match[1] not in one.splits and published_dataset(one.name) is None
    ]
    for one in lacking:
        one.splits = (*one.splits, match[1])
    return bool(lacking)


def _merge_model_requests(missing_inputs: Sequence[MissingInput]) -> Iterator[MissingInput]:
    """The missing inputs, each model once with all files that were requested from it."""
    files: dict[str, tuple[str, ...]] = {}
    for one in missing_inputs:
        if one.kind == "model":
            files[one.name] = tuple(dict.fromkeys((*files.get(one.name, ()), *one.files)))
        else:
            yield one
    for name, requested in files.items():
        yield MissingInput("model", name, files=requested)


def _missing_inputs(
    missing_input: MissingInput, runs: Sequence[Run], folder: Path, options: PrepareOptions
) -> Iterator[RequiredInput]:
    if missing_input.kind == "model":
        yield list_model(missing_input.name, "", folder, options, asked=True, files=missing_input.files)
    elif is_data_file_url(missing_input.name):
        one = _missing_path(missing_input.name, runs, folder, options, ())
        one.path = None  # it isn't a path on this machine
        yield one
    elif os.path.isabs(missing_input.name):  # a folder of data
        for file in missing_input.files:
            yield _missing_path(os.path.join(missing_input.name, file), runs, folder, options, ())
    else:
        named = NamedInput(
            "data", missing_input.name, "", "dataset_name", True, missing_input.subset, missing_input.split
        )
        yield list_data_set(runs[0], named, folder, _columns_read_by_runs(runs), options)


def _missing_path(
    path: str, runs: Sequence[Run], folder: Path, options: PrepareOptions, columns: tuple[str, ...]
) -> RequiredInput:
    """A file that was not found; ``columns`` are those that the code reads which opened it."""
    return list_data_set(runs[0], NamedInput("data", path, ""), folder, columns or _columns_read_by_runs(runs), options)


def _infer_input_at_failure(
    path: str, failure: Failure, runs: Sequence[Run], known: Sequence[RequiredInput], options: PrepareOptions
) -> RequiredInput:
    """A missing file or folder, with the format that the code which tried to open it reads."""
    folder = Path.cwd()
    whole = to_absolute_path(path, folder)
    numbers = (
        infer_checkpoint_input(whole, failure)
        or infer_array_input(whole, failure, runs, known)
        or infer_table_input(whole, failure, runs)
    )
    if numbers is not None and (path.endswith((".csv", ".tsv"))):
        numbers.separator = csv_separator(runs[0])
    return numbers or _missing_path(path, runs, folder, options, columns_requested_at_failure(failure))


def _columns_read_by_runs(runs: Sequence[Run]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for run in runs for name in columns_read_in(run.scripts)))


def _merge_inputs(
    required_inputs: list[RequiredInput],
    discovered: Sequence[RequiredInput],
    columns: dict[str, tuple[str, ...]],
    scripts: Sequence[Script],
) -> list[RequiredInput]:
    """The list with new discoveries, which replace unknown inputs of the same kind."""
    kinds = {one.kind for one in discovered if one.state != "unknown"}
    kept = [one for one in required_inputs if not (one.state == "unknown" and one.kind in kinds)]
    for one in kept:
        if one.kind == "data" and one.state == "made":
            have = {column.partition(":")[0] for column in one.columns}
            added = [name for name in columns.get("*", ()) if name not in have]
            one.columns = (*one.columns, *add_column_kinds(added, scripts))
    return [*kept, *discovered]


def redirect_own_modules(own_package: ProjectPackage, is_taken: Callable[[str], bool]) -> dict[str, bytes]:
    """Modules that redirect to the project's own, needed if its folder also has names that ``is_taken`` reports.

    An editable install comes last on the path, whereas ``PYTHONPATH`` precedes installed packages and would hide
    them.
    """
    modules = python_packages_in_folder(own_package.source)
    hidden = {name for name in modules if canonical_package_name(name) != own_package.name and is_taken(name)}
    if not hidden:
        return {}
    return {
        f"project/code/{name}/__init__.py": _PACKAGE_STUB_TEMPLATE.format(
            folder=str((own_package.source / name).absolute())
        ).encode()
        for name in modules - hidden - NON_PACKAGE_FOLDERS
    }


def distribution_files(own_package: ProjectPackage) -> dict[str, bytes]:
    """What an installed package has besides its code: commands, and metadata for ``importlib.metadata``."""
    files: dict[str, bytes] = {}
    for name, target in own_package.scripts.items():
        module, _, function = target.partition(":")
        if CONSOLE_SCRIPT_PATTERN.fullmatch(f"{name}={module}:{function}"):
            text = f"#!/usr/bin/env python\nimport sys\nfrom {module} import {function.partition('.')[0]}\n"
            files[f"project/bin/{name}"] = f"{text}sys.exit({function}())\n".encode()
    if own_package.name and own_package.version:
        folder = f"project/site/{own_package.name.replace('-', '_')}-{own_package.version}.dist-info"
        files[f"{folder}/METADATA"] = (
            f"Metadata-Version: 2.1\nName: {own_package.name}\nVersion: {own_package.version}\n".encode()
        )
        lines = [f"{name} = {target}" for name, target in own_package.scripts.items()]
        files[f"{folder}/entry_points.txt"] = "\n".join(["[console_scripts]", *lines, ""]).encode()
    return files


def texts_in_failing_statement(failure: Failure) -> set[str]:
    """The strings in the user's statement that failed, such as the name of the dataset that it opens."""
    frame = failure.innermost("user")
    if frame is None:
        return set()
    try:
        script = Script(SourceFile.read(Path(frame.path)))
    except UserError:
        return set()
    if script.tree is None:
        return set()
    every = (one for one in ast.walk(script.tree) if isinstance(one, ast.stmt))
    statements = [one for one in every if one.lineno <= frame.line <= (one.end_lineno or one.lineno)]
    last = max(statements, key=lambda one: (one.lineno, -(one.end_lineno or 0)), default=None)
    found = ast.walk(last) if last is not None else iter(())
    return {node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def columns_requested_at_failure(failure: Failure) -> tuple[str, ...]:
    """The columns that the failing class or function reads from rows; empty if unknown."""
    for frame in reversed(failure.frames):
        if frame.owner != "user":
            continue
        try:
            script = Script(SourceFile.read(Path(frame.path)))
        except UserError:
            return ()
        around = [
            node
            for node in script.nodes(ast.ClassDef, ast.FunctionDef)
            if node.lineno <= frame.line <= (node.end_lineno or node.lineno)
        ]
        if around:
            outermost = min(around, key=lambda node: node.lineno)
            lines = script.source.data.decode("utf-8", "replace").splitlines()[outermost.lineno - 1 :]
            text = textwrap.dedent("\n".join(lines[: (outermost.end_lineno or 0) - outermost.lineno + 1]))
            columns = columns_read_in([Script(SourceFile(frame.path, text.encode()))])
            return (*columns, *((TEMPLATE,) if f".{TEMPLATE}(" in text else ()))
    return ()
