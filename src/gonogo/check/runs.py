"""Collect the runs to check: each launch with all files that it names, then the files that belong to no launch."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from gonogo.check.environment import STACK
from gonogo.check.placeholders import missing_programs_note, placeholder_note, placeholders_in, vcs_packages_note
from gonogo.check.run_of_launch import RunBuilder
from gonogo.check.settings import CheckSettings, matches_path
from gonogo.evidence.document.json_file import read_json
from gonogo.evidence.document.json_problems import ConfigProblem
from gonogo.evidence.document.yaml_file import read_yaml
from gonogo.evidence.environment.environment import Environment, Package
from gonogo.evidence.environment.own_package import project_console_script
from gonogo.evidence.environment.stated import StatedRelease, stated_releases
from gonogo.evidence.field import Field
from gonogo.evidence.files import LOCK_FILES, FileKind, Files, environment_files, kind_of, walk
from gonogo.evidence.launch.command_words import SHELLS
from gonogo.evidence.launch.job_file import file_of_command, notebook_source
from gonogo.evidence.launch.jobs.workload import Workload, unfilled_variables
from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.launch.manifest import is_manifest, template_note
from gonogo.evidence.notebook import SUFFIX as NOTEBOOK
from gonogo.evidence.paths import exists, is_file, is_folder, iter_parent_folders
from gonogo.evidence.run import Run
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Skipped, Text, UserError, translated

_LAUNCH_SIZE_VARIABLES = ("NPROC_PER_NODE", "NNODES", "FORCE_TORCHRUN")
"""Environment variables from which ms-swift and LLaMA-Factory take the number of processes."""
_VARIABLE_WITH_DEFAULT_PATTERN = re.compile(r"\$\{([A-Za-z_]\w*):?[-=]")
"""``${CONFIG_FILE:-debug.toml}``: what the script takes from the shell in which it is started."""
_SHELL_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch")
_MAX_SCRIPT_BYTES = 1 << 20
_PROGRAM_FROM_INPUT = translated("the program is read from standard input, so gonogo can't read it")
_PROGRAM_NOT_HERE = translated("no such file: the program that the command starts was not checked")
_FOLDER_NOT_HERE = translated("there is no such folder, so {program}, which the command starts in it, was not checked")
_MODULE_NOT_HERE = translated("no such module in the project: the program that the command starts was not checked")
FAULT = translated("internal error in gonogo ({what}); GONOGO_DEBUG=1 prints the traceback; please report it")
_PROBLEM_AT_LINE = translated("line {line}: {problem}")
_MAX_DUPLICATE_LAUNCHES = 5
_CANNOT_READ = translated("can't read {path}: {why}")
_NO_SUCH_PATH = translated("{path}: no such file or folder")


class GatheredRuns(msgspec.Struct, frozen=True):
    """The runs with the files read for them; what was covered, and what was not and why."""

    runs: tuple[Run, ...]
    files: Files
    covered: tuple[Text, ...]
    skipped: tuple[Skipped, ...]
    not_ours: tuple[Skipped, ...] = ()
    """Files that the user named, of a type that gonogo doesn't check."""
    notes: tuple[Text, ...] = ()


def gather_runs_of_inputs(
    paths: Sequence[str],
    command: Sequence[str],
    *,
    settings: CheckSettings,
    use_installed: bool,
    version_overrides: Mapping[str, str] | None = None,
) -> GatheredRuns:
    """The runs given by files, folders and a command; ``version_overrides`` as for :func:`gonogo.check.findings.check`.

    Raises UserError if a path doesn't exist, a named file can't be read, or the command starts nothing.
    """
    gatherer = _RunGatherer(Files(Path.cwd()), settings, use_installed, version_overrides)
    if command:
        gatherer.add_command(command)
    for path in paths or ([] if command else ["."]):
        gatherer.add_file_or_folder(path)
    return gatherer.gather_runs()


_PARAMETER_PATTERN = re.compile(r"^[^#\n]*?(\$(?:[1-9@*#]|\{[1-9@*#][^}\n]*\}))", re.MULTILINE)
_NEEDS_ARGUMENTS = translated(
    "{command}: starts no program that gonogo recognizes when it is given no argument, but it reads {name} on line "
    "{line}: add what you launch it with, for example: gonogo check -- {command} ARGUMENT"
)


def _first_parameter(script: Path) -> dict[str, str] | None:
    """The first argument that a script reads, and its line."""
    text = script.read_text(encoding="utf-8", errors="replace")
    found = _PARAMETER_PATTERN.search(text)
    return {"name": found[1], "line": str(text.count("\n", 0, found.start(1)) + 1)} if found is not None else None


class _RunGatherer:
    """Collects launches, configs and scripts from the given inputs, and makes runs of them."""

    def __init__(
        self, files: Files, settings: CheckSettings, use_installed: bool, version_overrides: Mapping[str, str] | None
    ) -> None:
        self.files = files
        self.settings = settings
        self.use_installed = use_installed
        self.version_overrides = version_overrides
        self.launches: list[Launch] = []
        self.found: dict[FileKind, list[SourceFile]] = {kind: [] for kind in FileKind}
        self.named: set[str] = set()
        """Files that the user named individually, for which an unsupported type is reported."""
        self.not_ours: list[Skipped] = []
        self.placeholders: list[tuple[str, str]] = []
        """Unfilled placeholders in scripts, with their places."""
        self._environments: dict[Path | None, Environment] = {}
        self._with_stated: dict[tuple[Path | None, StatedRelease], Environment] = {}
        self._declared_by: dict[Path, Environment] = {}
        self._asked_for = settings.environment
        self._jobs: dict[int, Workload] = {}
        """The queued job that each launch belongs to, by the launch's ``id()``."""
        self.typed = False
        """Whether a command was typed, so that this Python's packages apply unless a file says otherwise."""

    def add_command(self, command: Sequence[str]) -> None:
        """Add a launch command, given as its words."""
        if (file := file_of_command(command)) is not None:
            self.add_file_or_folder(file)
            return
        self.typed = True
        from gonogo.evidence.launch.reading import launches_of_command

        given = self._variables_used_by(command)
        launches = launches_of_command(command, self.files.base, given)
        if not launches and (own := project_console_script(command[0], self.files.base)) is not None:
            words = ["python", "-m", own.partition(":")[0], *command[1:]]
            launches = launches_of_command(words, self.files.base, given)
        if not launches and Path(command[0]).name in SHELLS:
            script = next((word for word in command[1:] if not word.startswith("-")), None)
            if script is not None and "-c" not in command and not exists(self.files.base / script):
                raise UserError(_NO_SUCH_PATH.format(path=script))
            if (
                script is not None
                and "-c" not in command
                and (gap := _unreadable_reason(self.files.base / script)) is not None
            ):
                raise UserError(_CANNOT_READ.format(path=script, why=gap))
            if (
                script is not None
                and script == command[-1]
                and "-c" not in command
                and (parameter := _first_parameter(self.files.base / script)) is not None
            ):
                raise UserError(_NEEDS_ARGUMENTS.format(command=" ".join(command)[:200], **parameter))
        if not launches:
            raise UserError(
                translated(
                    "{command}: starts no program that gonogo recognizes: give the command or script that "
                    "launches the training, for example: gonogo check -- bash launch.sh"
                ).format(command=" ".join(command)[:200])
            )
        for launch in launches:
            self.files.sources.setdefault(launch.source.path, launch.source)
            self.launches.append(launch)
            self._report_missing_program(launch)
        for source in dict.fromkeys(launch.source for launch in launches):
            self.placeholders += placeholders_in(source, [one for one in launches if one.source is source])

    def _variables_used_by(self, command: Sequence[str]) -> dict[str, str]:
        """Variables of this shell that the command uses: sizes, and those for which its scripts have a default."""
        names = set(_LAUNCH_SIZE_VARIABLES)
        for word in command:
            path = self.files.base / word
            if word.endswith(_SHELL_SUFFIXES) and is_file(path) and path.stat().st_size <= _MAX_SCRIPT_BYTES:
                names.update(_VARIABLE_WITH_DEFAULT_PATTERN.findall(path.read_text(encoding="utf-8", errors="replace")))
        return {name: os.environ[name] for name in sorted(names) if name in os.environ}

    def _report_missing_program(self, launch: Launch) -> None:
        """Report a launch's program as a gap if it doesn't exist here, since it was not checked."""
        if launch.launcher == "python" and launch.program.absent and launch.heredoc is None:
            self.files.skipped.append(Skipped(translated("python"), _PROGRAM_FROM_INPUT))
        if launch.program_kind == "module" and launch.program.string and not launch.in_container:
            self._report_missing_module(launch, launch.program.string)
        if launch.program.unknown and launch.heredoc is None and launch.program.reason is not None:
            where = f"{launch.source.path}:{launch.line}"
            self.files.skipped.append(Skipped(Text(where, where), launch.program.reason))
        path = launch.path_of(launch.program) if launch.program_kind == "script" else None
        named = launch.program.string if launch.program_kind == "script" else None
        if path is None and named and self.typed and not launch.in_container and not is_folder(launch.cwd):
            folder = self.files.display_path(launch.cwd)
            self.files.skipped.append(Skipped(Text(folder, folder), _FOLDER_NOT_HERE.format(program=named)))
        if path is None or launch.heredoc is not None or launch.in_container:
            return
        if not exists(path) and os.path.normpath(path) not in launch.written_files:
            name = self.files.display_path(path)
            self.files.skipped.append(Skipped(Text(name, name), _PROGRAM_NOT_HERE))

    def _report_missing_module(self, launch: Launch, name: str) -> None:
        """Report a module as a gap if neither the project nor this Python has it."""
        from gonogo.check.python_path import is_installed, module_file

        if module_file(launch, name) is None and not is_installed(name.partition(".")[0]):
            self.files.skipped.append(Skipped(Text(name, name), _MODULE_NOT_HERE))

    def add_file_or_folder(self, path: str) -> None:
        """Add a file, or a folder with everything in it."""
        place = Path(path)
        if is_folder(place):
            for found, kind in walk(place, self._is_excluded, self.files.skipped):
                self._add_file(found, kind)
        elif exists(place):
            self.named.add(self.files.display_path(place))
            kind_of_named = FileKind.PYTHON if path.endswith(NOTEBOOK) else kind_of(place)
            if kind_of_named is None:
                self._skip_unsupported_file(self.files.display_path(place))
            else:
                # The user named this file, so failing to read it is an error.
                _ = notebook_source(path) if path.endswith(NOTEBOOK) else SourceFile.read(place)
                self._add_file(place, kind_of_named)
        else:
            raise UserError(_NO_SUCH_PATH.format(path=path))

    def _is_excluded(self, path: str) -> bool:
        return any(matches_path(self.files.display_path(path), pattern) for pattern in self.settings.exclude)

    def _add_file(self, path: Path, kind: FileKind) -> None:
        source = self.files.read(path)
        if source is None or source in self.found[kind]:
            return
        self.found[kind].append(source)
        if kind is FileKind.SHELL or (kind is FileKind.YAML and is_manifest(source)):
            from gonogo.evidence.launch.reading import read_launches

            launches = read_launches(source)
            self.launches += launches
            if kind is FileKind.YAML:
                self._assign_jobs(source, launches)
            else:
                for launch in launches:
                    self._report_missing_program(launch)
            self.placeholders += placeholders_in(source, launches)

    def _assign_jobs(self, source: SourceFile, launches: Sequence[Launch]) -> None:
        """Find the job of a manifest that each launch belongs to: its own, or the one that runs its script."""
        from gonogo.evidence.launch.manifest import parse_workloads, workload_at

        jobs = parse_workloads(source)
        self.placeholders += [(f"${name}", source.path) for job in jobs for name in unfilled_variables(job)]
        for launch in launches:
            at = workload_at(launch.place) if launch.place.source is source else None
            job = at or (jobs[0] if len(jobs) == 1 else None)
            if job is not None:
                self._jobs[id(launch)] = job

    def _skip_unsupported_file(self, path: str, source: SourceFile | None = None) -> None:
        why = translated("not a file type that gonogo checks")
        if source is not None and source in self.found[FileKind.JSON]:
            for problem in read_json(source).problems[:1]:
                why = translated("{why}, and not valid JSON: line {line}: {problem}").format(
                    why=why, line=problem.place.line, problem=problem.message
                )
        if source is not None and source in self.found[FileKind.YAML]:
            for problem_of_it in [template_note(source), *map(_problem_text, read_yaml(source).fatal_problems)]:
                if problem_of_it is not None:
                    why = translated("{why}; {problem}").format(why=why, problem=problem_of_it)
                    break
        self.not_ours.append(Skipped(Text(path, path), why))

    def gather_runs(self) -> GatheredRuns:
        maker = RunBuilder(self.files)
        runs = [run for launch in self._distinct_launches() if (run := self._run_of(maker, launch)) is not None]
        runs += self._runs_of_unused_files(maker, [run.environment for run in runs])
        for source in self.files.sources.values():
            if source.gap is not None:
                self.files.skipped.append(Skipped(Text(source.path, source.path), source.gap))
        covered = tuple(_covered_items(runs, self.launches))
        to_fill_in = placeholder_note(self.placeholders)
        elsewhere = missing_programs_note([one for one in self.launches if one.in_container or id(one) in self._jobs])
        unread = (to_fill_in, elsewhere, vcs_packages_note(runs))
        notes = (*maker.notes, *(note for note in unread if note is not None))
        skipped = tuple(dict.fromkeys(self.files.skipped))
        return GatheredRuns(tuple(runs), self.files, covered, skipped, tuple(self.not_ours), notes)

    def _distinct_launches(self) -> Iterator[Launch]:
        """The launches, leaving out further exact duplicates.

        A duplicate would give the same findings as the first ones, and cost time.
        """
        met: Counter[tuple[object, ...]] = Counter()
        for launch in self.launches:
            variables = frozenset((name, str(field.value)) for name, field in launch.variables.items())
            alike = (launch.source.path, launch.cwd, tuple(word.value for word in launch.words), variables)
            met[alike] += 1
            if met[alike] <= _MAX_DUPLICATE_LAUNCHES:
                yield launch

    def _run_of(self, run_maker: RunBuilder, launch: Launch) -> Run | None:
        """The run of a launch; None if gonogo itself fails on it, which is reported as skipped."""
        try:
            return run_maker.run_of(launch, self._environment_for(launch))
        except (UserError, MemoryError):
            raise
        except Exception as error:
            if os.environ.get("GONOGO_DEBUG"):
                raise
            where = f"{launch.source.path}:{launch.line}"
            what = f"{type(error).__name__}: {error}"[:200]
            self.files.skipped.append(Skipped(Text(where, where), FAULT.format(what=what)))
            return None

    def _runs_of_unused_files(self, run_maker: RunBuilder, launch_environments: Sequence[Environment]) -> list[Run]:
        """Runs of files that no launch uses, in which nothing else is known."""
        environment = self._environment_for(None)
        runs: list[Run] = []
        for source in (*self.found[FileKind.JSON], *self.found[FileKind.YAML]):
            if source.path in run_maker.used:
                continue
            run = run_maker.run_of_config(source, environment)
            if run is not None:
                runs.append(run)
                for broken in run.accelerate.fatal_problems if run.accelerate is not None else ():
                    self.files.skipped.append(Skipped(Text(source.path, source.path), _problem_text(broken)))
            elif source.path in self.named:
                self._skip_unsupported_file(source.path, source)
        runs += run_maker.runs_of_scripts(self.found[FileKind.PYTHON], environment, self.named)
        for source in self.found[FileKind.ENVIRONMENT]:
            read = self._cached_environment(Path(source.path))
            used = (*launch_environments, *(run.environment for run in runs))
            if read.packages and not any(environment is read for environment in used):
                runs.append(Run(read))
        if not runs and not self.launches and self.settings.environment is not None:
            runs.append(Run(environment))
        return runs

    def _environment_for(self, launch: Launch | None) -> Environment:
        """The versions that a launch will have, from the given environment file or the nearest one with versions."""
        if self._asked_for is not None:
            return self._cached_environment(self._asked_for)
        folders = [self.files.base]
        if launch is not None:
            folders = [launch.cwd, *([Path(launch.source.path).absolute().parent] if launch.source.writable else [])]
            folders = [folder for folder in folders if is_folder(folder)] or [self.files.base]
        elif self.found[FileKind.ENVIRONMENT]:
            folders = [Path(self.found[FileKind.ENVIRONMENT][0].path).absolute().parent]
        if launch is None and not any(self.found.values()):
            return self._cached_environment(None)
        files = list(environment_files(folders))
        stating = (path for path in files if any(self._declared_environment(path).has(name) for name in STACK))
        file = next(stating, files[0] if files else None)
        found = self._cached_environment(file)
        if launch is not None:
            found = self._with_stated_torch(found, file, folders)
        job = self._jobs.get(id(launch))
        image = launch.image if launch is not None and launch.in_container else None
        if job is None and image is None:
            return found
        from gonogo.evidence.job_environment import container_environment, job_environment_of

        if found.declared is None:  # these are the versions installed here, but the launch runs in a job or container
            declared = self._declared_environment(file) if file is not None else Environment.unknown()
            found = msgspec.structs.replace(found, declared=declared)
        if job is not None:
            elsewhere = launch is not None and launch.place.source is not job.container.source
            script = Place(launch.source, 0, len(launch.source.data)) if launch is not None and elsewhere else None
            return job_environment_of(job, script, found)
        return container_environment(
            image or Field.missing(), launch.container_script if launch is not None else None, found
        )

    def _with_stated_torch(self, found: Environment, file: Path | None, folders: Sequence[Path]) -> Environment:
        """The environment with the torch that a page states in prose, if no file says which: it has the launcher."""
        declared = self._declared_environment(file).packages.get("torch") if file is not None else None
        if declared is not None and (declared.specifier or declared.address):
            return found
        places = tuple(dict.fromkeys(place for folder in folders for place in iter_parent_folders(folder)))
        stated = stated_releases(places).get("torch")
        source = self.files.read(stated.page) if stated is not None else None
        if stated is None or source is None:
            return found
        key = (file, stated)
        if key not in self._with_stated:
            source.path = self.files.display_path(stated.page)
            place = Place(source, stated.start, stated.end)
            told = Package("torch", stated.specifier, place, Text(source.path, source.path))
            self._with_stated[key] = found.with_overrides({"torch": told})
        return self._with_stated[key]

    def _cached_environment(self, path: Path | None) -> Environment:
        key = Path(os.path.abspath(path)) if path is not None else None
        if key not in self._environments:
            self._environments[key] = self._read_environment(key)
        return self._environments[key]

    def _read_environment(self, path: Path | None) -> Environment:
        declared = self._declared_environment(path) if path is not None else Environment.unknown()
        if path is not None and self._is_requested_environment(path) and self.version_overrides is None:
            return declared  # a file that describes another machine: the packages installed here don't matter
        found = declared.merged_over(self._machine_environment) if self.use_installed else declared
        if self.use_installed and not self.typed:
            found = msgspec.structs.replace(found, declared=declared)
        if path is not None:
            found = msgspec.structs.replace(found, alternatives=self._environments_of_neighbours(path))
        return found.with_overrides(self._version_overrides) if self._version_overrides else found

    def _environments_of_neighbours(self, path: Path) -> tuple[Environment, ...]:
        """The environments that the files next to a given one declare; none if that one is a lock file."""
        if path.name in LOCK_FILES:
            return ()
        beside = (file for file in environment_files([path.parent]) if file.parent == path.parent and file != path)
        found = (self._declared_environment(file) for file in beside)
        return tuple(one for one in found if any(one.has(name) for name in STACK))

    def _is_requested_environment(self, path: Path) -> bool:
        return self._asked_for is not None and path == Path(os.path.abspath(self._asked_for))

    def _declared_environment(self, path: Path) -> Environment:
        """The environment that one file declares."""
        from gonogo.evidence.environment.reading import read_environment

        path = Path(os.path.abspath(path))
        if path not in self._declared_by:
            source = SourceFile.read(path) if self._is_requested_environment(path) else self.files.read(path)
            if source is not None:
                source.path = self.files.display_path(path)
                self.files.sources.setdefault(source.path, source)
            self._declared_by[path] = read_environment(source) if source is not None else Environment.unknown()
        return self._declared_by[path]

    @cached_property
    def _machine_environment(self) -> Environment:
        from gonogo.evidence.environment.this_machine import inspect_this_machine

        return inspect_this_machine()

    @cached_property
    def _version_overrides(self) -> dict[str, Package]:
        """The packages whose versions the user has overridden, as ``version_overrides`` gives them."""
        from gonogo.evidence.environment.this_machine import interpreter_description

        wanted = self.version_overrides or {}
        return {
            name: Package(name, f"=={version}", source=interpreter_description()) for name, version in wanted.items()
        }


def _unreadable_reason(path: Path) -> Text | None:
    """Why a shell script can't be read; None if it can."""
    from gonogo.evidence.shell.parse import parse_script

    source = SourceFile.read(path)
    parse_script(source)
    return source.gap


def _covered_items(runs: Sequence[Run], launches: Sequence[Launch]) -> list[Text]:
    """What was checked, one line for each kind."""
    configs = sorted({run.config.name for run in runs if run.config is not None})
    scripts = sorted({script.source.path for run in runs for script in run.scripts})
    versions = sorted({text.en: text for run in runs for text in run.environment.sources}.items())
    starts = [f"{launch.source.path}:{launch.line} ({launch.launcher})" for launch in launches]
    lines = []
    for name_en, name_zh, found in (
        ("launches", "启动命令", starts),
        ("DeepSpeed configs", "DeepSpeed 配置", configs),
        ("scripts", "脚本", scripts),
    ):
        if found:
            shown = ", ".join(found[:8])
            more = len(found) - 8
            rest_en, rest_zh = (f" and {more} more", f" 等另外 {more} 个") if more > 0 else ("", "")
            lines.append(Text(f"{name_en}: {shown}{rest_en}", f"{name_zh}：{shown}{rest_zh}"))
    if versions:
        texts = [text for _, text in versions[:4]]
        lines.append(
            Text("versions: " + ", ".join(text.en for text in texts), "版本：" + "，".join(text.zh for text in texts))
        )
    return lines


def _problem_text(problem: ConfigProblem) -> Text:
    """A config's problem with its line, as one sentence."""
    return _PROBLEM_AT_LINE.format(line=problem.place.line, problem=problem.message)
