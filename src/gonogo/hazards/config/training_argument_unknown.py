from gonogo.hazards.config._argument_names import first_and_last_release, known_argument_names
from gonogo.hazards.config._parsed_arguments import ParsedArgumentClasses, parsed_argument_classes
from gonogo.hazards.config._renaming import keyword_rename_fixes, option_rename_fixes
from gonogo.hazards.facts.nearest import find_similar_name
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Script, Text, translated


class TrainingArgumentUnknown(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Keywords of TrainingArguments that no release of the table has."""
        known = known_argument_names() | known_argument_names("Seq2SeqTrainingArguments")
        for call in script.calls(*_TRAINING_ARGUMENTS_CLASSES):
            if call.name not in _TRAINING_ARGUMENTS_CLASSES:
                continue
            for name in call.keywords:
                place = call.keyword_place(name)
                if name in known or place is None or not call.has(name) or name.startswith("_"):
                    continue
                near = find_similar_name(name, known, cutoff=0.8)
                yield self.finding(
                    translated("TrainingArguments has no argument {name} and raises TypeError.{near}").format(
                        name=name, near=_nearest_name_text(near, "")
                    ),
                    certainty=_judge_certainty(run, near),
                    cure=_rename_cure(near, ""),
                    spans=place.span(),
                    fixes=keyword_rename_fixes(call, name, near, safe=False) if near else (),
                    parameter=name,
                    confirm=() if _judge_certainty(run, near) is Certainty.CERTAIN else (self.texts["confirm"],),
                )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Options that no visible dataclass and no release of TrainingArguments has."""
        if launch.framework is not None or launch.program_kind != "script":
            return
        parsed = parsed_argument_classes(run)
        if parsed is None:
            return
        known = _known_arguments(parsed)
        for name in launch.options.names():
            place = launch.options.place_of(name)
            if place is None or not place.text.startswith("--") or len(name) < 2:
                continue
            if name in known or any(one.startswith(name) for one in known) or name in ("local_rank", "help"):
                continue
            near = find_similar_name(name, [one for one in known if not one.startswith("no_")], cutoff=0.8)
            parser = translated("the program parses its arguments into these classes")
            yield self.finding(
                translated("No argument class that the program parses has an option --{name}.{near}").format(
                    name=name, near=_nearest_name_text(near, "--")
                ),
                certainty=_judge_certainty(run, near),
                cure=_rename_cure(near, "--"),
                spans=(place.span(), parsed.call.place.span(parser)),
                fixes=option_rename_fixes(launch, name, near, safe=False) if near else (),
                parameter=name,
                confirm=() if _judge_certainty(run, near) is Certainty.CERTAIN else (self.texts["confirm"],),
            )


_TRAINING_ARGUMENTS_CLASSES = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
_ADD_FIELD_CURE = translated("Remove it, or add it to the program's own dataclasses")


def _nearest_name_text(suggestion: str | None, prefix: str) -> Text:
    if suggestion is None:
        return Text("", "")
    return translated(" The closest match is {name}.").format(name=prefix + suggestion)


def _rename_cure(suggestion: str | None, prefix: str) -> Text:
    if suggestion is not None:
        return translated("Use {name} instead").format(name=prefix + suggestion)
    return _ADD_FIELD_CURE if prefix else translated("Remove the argument")


def _judge_certainty(run: Run, suggestion: str | None) -> Certainty:
    """Certain for a misspelt known name, and for a release in the table."""
    if suggestion is not None or run.environment.within(
        "transformers", f">={first_and_last_release()[0]},<={first_and_last_release()[1]}.99"
    ):
        return Certainty.CERTAIN
    return Certainty.LIKELY


def _known_arguments(parsed_types: ParsedArgumentClasses) -> frozenset[str]:
    names = set(parsed_types.own_fields) | known_argument_names()
    if parsed_types.seq2seq:
        names |= known_argument_names("Seq2SeqTrainingArguments")
    return frozenset(names | {f"no_{name}" for name in names})
