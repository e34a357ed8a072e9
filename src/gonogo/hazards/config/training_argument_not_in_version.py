from gonogo.evidence.library import is_library_path
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.config._argument_names import (
    ARGUMENT_REPLACEMENTS,
    RENAMED_ARGUMENTS,
    excluding_release,
    is_droppable_argument,
    known_argument_names,
    possible_removal_release,
    renamed_argument,
)
from gonogo.hazards.config._parsed_arguments import parsed_argument_classes
from gonogo.hazards.config._renaming import keyword_rename_fixes, option_rename_fixes
from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import (
    Call,
    Certainty,
    Environment,
    Finding,
    Findings,
    Fix,
    Hazard,
    Launch,
    Run,
    Script,
    Span,
    Text,
    translated,
)

_ARGUMENT_CLASSES = {
    "transformers.TrainingArguments": "TrainingArguments",
    "transformers.Seq2SeqTrainingArguments": "TrainingArguments",
    "transformers.Trainer": "Trainer",
    "transformers.Seq2SeqTrainer": "Trainer",
}

_LEAVE_OUT = translated("Leave it out")


def _is_passed_by_library(error: LoggedError) -> bool:
    """Whether the argument was passed on by a library built on transformers."""
    last = error.innermost
    return (
        last is not None and is_library_path(last.path) and not any(part in last.path for part in _HUGGING_FACE_PATHS)
    )


_HUGGING_FACE_PATHS = ("/transformers/", "/huggingface_hub/", "\\transformers\\", "\\huggingface_hub\\")
"""Their wrappers come between the program's call and the called function."""


class TrainingArgumentNotInVersion(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """The error of TrainingArguments or Trainer about an argument that another release has."""
        shown: tuple[LoggedError | LineMatch, ...] = (
            *log.errors_of("TypeError"),
            *log.find_all(self.patterns["unexpected_keyword"]),
        )
        for evidence in shown:
            text = evidence.message if isinstance(evidence, LoggedError) else evidence.text
            match = self.patterns["unexpected_keyword"].search(text)
            if match is None:
                continue
            if isinstance(evidence, LoggedError) and _is_passed_by_library(evidence):
                return  # packages of different ages, not an argument of the program
            kind, name = str(match.group(1)), str(match.group(2))
            known = "Trainer" if kind.endswith("Trainer") else "TrainingArguments"
            if name not in known_argument_names(known) and name not in RENAMED_ARGUMENTS.values():
                continue  # mistyped, or an argument of a class of the project
            other = RENAMED_ARGUMENTS.get(name) or next(
                (old for old, new in RENAMED_ARGUMENTS.items() if new == name), None
            )
            instead = other or ARGUMENT_REPLACEMENTS.get(name)
            yield self.log_finding(
                evidence,
                self.texts["cause_in_log"].format(kind=kind, name=name),
                certainty=Certainty.LIKELY,
                cure=(
                    translated("Use {instead} instead").format(instead=instead)
                    if instead
                    else translated("Leave {name} out").format(name=name),
                    self.texts["cure"],
                ),
                parameter=name,
                confirm=translated("pip show transformers shows a different release than the program's requirements"),
            )
            return

    def in_script(self, script: Script, run: Run) -> Findings:
        """Keywords of calls of TrainingArguments and Trainer."""
        if not run.environment.has("transformers"):
            return
        for call in script.calls(*_ARGUMENT_CLASSES):
            kind = next((_ARGUMENT_CLASSES[name] for name in call.names if name in _ARGUMENT_CLASSES), None)
            own = call.name not in _ARGUMENT_CLASSES
            if kind is None or (own and _may_accept_keyword(call, run, kind)):
                continue
            for keyword in call.keywords:
                place = call.keyword_place(keyword)
                why = excluding_release(kind, keyword, run.environment)
                if place is None:
                    continue
                if why is None:
                    yield from self._newer_release_findings(keyword, kind, place.span(), run.environment)
                    continue
                yield self._build_finding(
                    keyword,
                    kind,
                    why,
                    place.span(),
                    run.environment,
                    is_certain=not own and call.has(keyword),
                    fix=_keyword_fix(call, keyword, kind, run.environment),
                )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Options of a program that parses TrainingArguments, and keys of LLaMA-Factory's YAML."""
        if not run.environment.has("transformers"):
            return
        parsed = parsed_argument_classes(run)
        factory = launch.framework == "llamafactory"
        if parsed is None and not factory:
            return
        for name in run.arguments.names():
            if run.arguments.source_of(name) == "script" or (parsed is not None and name in parsed.own_fields):
                continue
            field = run.arguments.get(name)
            why = excluding_release("TrainingArguments", name, run.environment)
            if factory and name not in RENAMED_ARGUMENTS:
                continue  # LLaMA-Factory's own class keeps some that transformers dropped
            place = launch.options.place_of(name)
            span = place.span() if place is not None else field.span()
            if why is None:
                if parsed is not None:
                    yield from self._newer_release_findings(name, "TrainingArguments", span, run.environment)
                continue
            yield self._build_finding(
                name,
                "TrainingArguments",
                why,
                span,
                run.environment,
                is_certain=parsed is not None and place is not None,
                fix=_option_fix(launch, name, run.environment),
            )

    def _newer_release_findings(self, name: str, kind: str, span: Span | None, environment: Environment) -> Findings:
        """A finding if releases that the project's files allow no longer have the argument: pip installs the newest."""
        until = possible_removal_release(kind, name, environment)
        if until is None:
            return
        package = environment.packages["transformers"]
        instead = RENAMED_ARGUMENTS.get(name) or ARGUMENT_REPLACEMENTS.get(name)
        older = f'pip install "transformers<{until}"'
        yield self.finding(
            self.texts["newer_cause"].format(
                kind=kind, name=name, border=until, stated=f"transformers{package.specifier}"
            ),
            certainty=Certainty.POSSIBLE,
            cure=(
                Text(f"Install an older one: {older}", f"安装较旧的版本：{older}"),
                translated("Use {instead} instead").format(instead=instead)
                if instead
                else translated("Leave {name} out").format(name=name),
            ),
            spans=(span, package.place.span() if package.place is not None else None),
            parameter=name,
            confirm=self.texts["newer_confirm"].format(border=until),
        )

    def _build_finding(
        self,
        name: str,
        kind: str,
        version_border: tuple[str, str],
        span: Span | None,
        environment: Environment,
        *,
        is_certain: bool,
        fix: tuple[Fix, ...],
    ) -> Finding:
        version = environment.field("transformers")
        instead = renamed_argument(kind, name, environment) or ARGUMENT_REPLACEMENTS.get(name)
        side, border_version = version_border
        cause = self.texts["removed_cause"] if side == "until" else self.texts["not_yet_cause"]
        other = f'pip install "transformers{"<" if side == "until" else ">="}{border_version}"'
        first = (
            translated("Use {instead} instead").format(instead=instead)
            if instead
            else translated("Leave {name} out").format(name=name)
        )
        return self.finding(
            cause.format(
                kind=kind, name=name, border=border_version, version=version.get(_transformers_specifier(environment))
            ),
            certainty=Certainty.CERTAIN if is_certain else Certainty.LIKELY,
            cure=(first, Text(f"Or {other}", f"或 {other}")),
            spans=(span, version.span(translated("this version"))),
            fixes=fix,
            parameter=name,
            confirm=translated("No code renames or discards the argument before TrainingArguments gets it"),
        )


def _transformers_specifier(environment: Environment) -> str:
    package = environment.packages.get("transformers")
    return package.specifier if package is not None and package.specifier else "?"


def _may_accept_keyword(call: Call, run: Run, kind: str) -> bool:
    """Whether a class of the project may accept the keyword: it has fields or an ``__init__`` of its own."""
    name = call.name.rpartition(".")[2]
    for script in run.scripts:
        for one in script.classes:
            if one.name == name:
                return "__init__" in one.methods or "__new__" in one.methods
    return True


def _keyword_fix(call: Call, name: str, kind: str, environment: Environment) -> tuple[Fix, ...]:
    if (new := renamed_argument(kind, name, environment)) and name != "no_cuda":
        return keyword_rename_fixes(call, name, new, safe=True)
    place, script = call.keyword_place(name), call.script
    if not is_droppable_argument(name) or place is None or not place.text.startswith(f"{name}=") or not script.editable:
        return ()
    return fix_with_edits(_LEAVE_OUT, lambda: script.removing_keyword(call, name), safe=False)


def _option_fix(launch: Launch, name: str, environment: Environment) -> tuple[Fix, ...]:
    if (new := renamed_argument("TrainingArguments", name, environment)) and name != "no_cuda":
        return option_rename_fixes(launch, name, new, safe=True)
    if not is_droppable_argument(name) or launch.options.place_of(name) is None or not launch.options.can_edit(name):
        return ()
    return fix_with_edits(_LEAVE_OUT, lambda: launch.options.removing(name), safe=False)
