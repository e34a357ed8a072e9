from gonogo.evidence.library import is_library
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.config._argument_names import INSTEAD, RENAMED, all_names, border, needs_nothing, successor
from gonogo.hazards.config._parsed_arguments import parsed_classes
from gonogo.hazards.config._renaming import renaming_keyword, renaming_option
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import (
    Call,
    Certainty,
    Environment,
    Finding,
    Findings,
    Fix,
    Hazard,
    Launch,
    Pattern,
    Run,
    Script,
    Span,
    Text,
    translated,
)

_CALLS = {
    "transformers.TrainingArguments": "TrainingArguments",
    "transformers.Seq2SeqTrainingArguments": "TrainingArguments",
    "transformers.Trainer": "Trainer",
    "transformers.Seq2SeqTrainer": "Trainer",
}

_REFUSED = Pattern(
    r"\b(\w*TrainingArguments|(?:Seq2Seq)?Trainer)(?:\.(?:__)?init(?:__)?)?\(\) got an unexpected keyword argument "
    r"['\"‘’`](\w+)"
)
_LEAVE_OUT = translated("Leave it out")


def _of_another_library(error: LoggedError) -> bool:
    """True where a library that builds on transformers handed the argument on."""
    last = error.innermost
    return last is not None and is_library(last.path) and not any(part in last.path for part in _PASSING_ON)


_PASSING_ON = ("/transformers/", "/huggingface_hub/", "\\transformers\\", "\\huggingface_hub\\")
"""Their wrappers stand between the program's call and what it calls."""


class TrainingArgumentNotInVersion(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """TrainingArguments' or the Trainer's refusal of an argument that it has in another release."""
        shown: tuple[LoggedError | LineMatch, ...] = (*log.errors_of("TypeError"), *log.find_all(_REFUSED))
        for evidence in shown:
            text = evidence.message if isinstance(evidence, LoggedError) else evidence.text
            match = _REFUSED.search(text)
            if match is None:
                continue
            if isinstance(evidence, LoggedError) and _of_another_library(evidence):
                return  # packages of two times, and no argument of the program's
            kind, name = str(match.group(1)), str(match.group(2))
            known = "Trainer" if kind.endswith("Trainer") else "TrainingArguments"
            if name not in all_names(known) and name not in RENAMED.values():
                continue  # mistyped, or of a class of the project's own
            other = RENAMED.get(name) or next((old for old, new in RENAMED.items() if new == name), None)
            instead = other or INSTEAD.get(name)
            yield self.log_finding(
                evidence,
                translated(
                    "{kind} in the installed transformers has no argument {name}: it belongs to another release."
                ).format(kind=kind, name=name),
                certainty=Certainty.LIKELY,
                cure=(
                    translated("Use {instead} instead").format(instead=instead)
                    if instead
                    else translated("Leave {name} out").format(name=name),
                    translated("Or install the transformers that the program was written for (its requirements file)"),
                ),
                parameter=name,
                confirm=translated("pip show transformers shows a different release from the program's requirements"),
            )
            return

    def in_script(self, script: Script, run: Run) -> Findings:
        """Keywords of the calls that make TrainingArguments and Trainer."""
        if run.environment.within("transformers", ">0") is None:
            return
        for call in script.calls(*_CALLS):
            kind = next((_CALLS[name] for name in call.names if name in _CALLS), None)
            own = call.name not in _CALLS
            if kind is None or (own and _takes_more(call, run, kind)):
                continue
            for keyword in call.keywords:
                place = call.keyword_place(keyword)
                why = border(kind, keyword, run.environment)
                if why is None or place is None:
                    continue
                yield self._finding(
                    keyword,
                    kind,
                    why,
                    place.span(),
                    run.environment,
                    certain=not own and call.has(keyword),
                    fix=_keyword_fix(call, keyword, kind, run.environment),
                )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Options of a program that parses TrainingArguments, and keys of LLaMA-Factory's YAML."""
        if run.environment.within("transformers", ">0") is None:
            return
        parsed = parsed_classes(run)
        factory = launch.framework == "llamafactory"
        if parsed is None and not factory:
            return
        for name in run.arguments.names():
            if run.arguments.source_of(name) == "script" or (parsed is not None and name in parsed.own_fields):
                continue
            field = run.arguments.get(name)
            why = border("TrainingArguments", name, run.environment)
            if why is None or (factory and name not in RENAMED):
                continue  # LLaMA-Factory's own class keeps some that transformers dropped
            place = launch.options.place_of(name)
            span = place.span() if place is not None else field.span()
            yield self._finding(
                name,
                "TrainingArguments",
                why,
                span,
                run.environment,
                certain=parsed is not None and place is not None,
                fix=_option_fix(launch, name, run.environment),
            )

    def _finding(
        self,
        name: str,
        kind: str,
        why: tuple[str, str],
        span: Span | None,
        environment: Environment,
        *,
        certain: bool,
        fix: tuple[Fix, ...],
    ) -> Finding:
        version = environment.field("transformers")
        instead = successor(kind, name, environment) or INSTEAD.get(name)
        side, border_version = why
        if side == "until":
            cause = translated(
                "{kind} no longer has the argument {name}: transformers {border} removed it, and this run has "
                "{version}."
            )
        else:
            cause = translated(
                "{kind} does not have the argument {name} yet: transformers {border} added it, and this run has "
                "{version}."
            )
        other = f'pip install "transformers{"<" if side == "until" else ">="}{border_version}"'
        first = (
            translated("Use {instead} instead").format(instead=instead)
            if instead
            else translated("Leave {name} out").format(name=name)
        )
        return self.finding(
            cause.format(kind=kind, name=name, border=border_version, version=version.get(_specifier(environment))),
            certainty=Certainty.CERTAIN if certain else Certainty.LIKELY,
            cure=(first, Text(f"Or {other}", f"或 {other}")),
            spans=(span, version.span(translated("this version"))),
            fixes=fix,
            parameter=name,
            confirm=() if certain else (translated("Nothing in between renames or swallows the argument"),),
        )


def _specifier(environment: Environment) -> str:
    package = environment.packages.get("transformers")
    return package.specifier if package is not None and package.specifier else "?"


def _takes_more(call: Call, run: Run, kind: str) -> bool:
    """Whether a class of the project's own may know the keyword: it has fields or an ``__init__`` of its own."""
    name = call.name.rpartition(".")[2]
    for script in run.scripts:
        for one in script.classes:
            if one.name == name:
                return "__init__" in one.methods or "__new__" in one.methods
    return True


def _keyword_fix(call: Call, name: str, kind: str, environment: Environment) -> tuple[Fix, ...]:
    if (new := successor(kind, name, environment)) and name != "no_cuda":
        return renaming_keyword(call, name, new, safe=True)
    place, script = call.keyword_place(name), call.script
    if not needs_nothing(name) or place is None or not place.text.startswith(f"{name}=") or not script.editable:
        return ()
    return fix_of(_LEAVE_OUT, lambda: script.removing_keyword(call, name), safe=False)


def _option_fix(launch: Launch, name: str, environment: Environment) -> tuple[Fix, ...]:
    if (new := successor("TrainingArguments", name, environment)) and name != "no_cuda":
        return renaming_option(launch, name, new, safe=True)
    if not needs_nothing(name) or launch.options.place_of(name) is None or not launch.options.can_edit(name):
        return ()
    return fix_of(_LEAVE_OUT, lambda: launch.options.removing(name), safe=False)
