import ast

from gonogo.evidence.launch.command_line import Option
from gonogo.hazards.facts.launcher_arguments import local_rank_spellings
from gonogo.hazards.facts.nearest import find_similar_name
from gonogo.hazards.facts.parsed_fields import required_dataclass_fields
from gonogo.hazards.facts.program_parser import DeclaredOption, ProgramParser, program_parser
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Text, translated

_NUMBERS = {"int": int, "float": float}


class ProgramArgumentRefused(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Arguments of the command that the program's argparse rejects, if all of its options are visible."""
        if launch.framework is not None or launch.program_kind not in ("script", "module"):
            return
        if not launch.options.options and launch.options.complete is False:
            return
        parser = program_parser(run)
        if parser is None:
            yield from self._missing_field_findings(launch, run)
            return
        intended: set[str] = set()
        for option in launch.options:
            word = _option_as_written(option)
            if word is None:
                continue
            refused = self._describe_refusal(option, word, parser)
            if refused is not None:
                sentence, cure, declared = refused
                intended.update({*cure.en.split()} & parser.option_strings if declared is None else ())
                spans = [option.place.span()]
                spans.append((declared.call if declared is not None else parser.parse).place.span())
                yield self.finding(sentence, cure=cure, spans=tuple(spans), parameter=word)
        yield from self._missing_option_findings(launch, run, parser, intended)

    def _missing_option_findings(self, launch: Launch, run: Run, parser: ProgramParser, intended: set[str]) -> Findings:
        """Required options that the command lacks, except those in ``intended``: a misspelt option stands for them."""
        if not parser.single or not launch.options.complete:
            return
        if any(word.value is None for word in launch.options.words):
            return  # an unknown word may be it
        given = [word for word in map(_option_as_written, launch.options) if word is not None]
        given += local_rank_spellings(launch, run)
        missing: list[DeclaredOption] = []
        positional = [one for one in parser.declared if not one.names and one.takes == "one" and one.is_unconditional]
        if len(positional) > sum(not (word.value or "").startswith("-") for word in launch.options.words):
            missing += positional
        for declared in parser.declared:
            required = declared.call.keyword_node("required")
            if not declared.names or not declared.is_unconditional or not isinstance(required, ast.Constant):
                continue
            if required.value is not True or intended.intersection(declared.names):
                continue
            if not any(declared in parser.declarations_of(word) for word in given):
                missing.append(declared)
        if not missing:
            return
        names = [max(declared.names or (declared.call.argument(0).string or "?",), key=len) for declared in missing]
        listed = ", ".join(names)
        yield self.finding(
            translated("The program requires {name}, which the command does not give.").format(name=listed),
            cure=translated("Give {name} a value").format(name=listed),
            spans=(launch.place.span(), *(declared.call.place.span() for declared in missing)),
            parameter=names[0],
        )

    def _missing_field_findings(self, launch: Launch, run: Run) -> Findings:
        """Required fields of the dataclasses that HfArgumentParser fills, which the command leaves out."""
        parsed = required_dataclass_fields(run)
        if parsed is None:
            return
        given = [word.value or "" for word in launch.options.words]
        options = [word.lstrip("-").partition("=")[0].replace("-", "_") for word in given if word.startswith("-")]
        missing = [one for one in parsed.required if not any(one.name.startswith(option) for option in options)]
        if not missing:
            return
        listed = ", ".join(f"--{one.name}" for one in missing)
        yield self.finding(
            translated("The program requires {name}, which the command does not give.").format(name=listed),
            cure=translated("Give {name} a value").format(name=listed),
            spans=(launch.place.span(), *(one.place.span() for one in missing[:4])),
            parameter=f"--{missing[0].name}",
        )

    def _describe_refusal(
        self, option: Option, word: str, parser: ProgramParser
    ) -> tuple[Text, Text, DeclaredOption | None] | None:
        """Why the parser refuses an option as given, what to do, and where the option is declared."""
        if not parser.may_accept(word):
            near = find_similar_name(word, parser.option_strings, cutoff=0.8)
            sentence = translated("The program's parser has no option {word}.").format(word=word)
            if near is not None:
                return sentence, translated("Use {name} instead").format(name=near), None
            return sentence, self.texts["remove"], None
        declarations = parser.declarations_of(word)
        if len(declarations) != 1 or not parser.single:
            return None
        declared = declarations[0]
        values = [one.value for one in option.values]
        if option.attached:
            values = [(option.word.value or "").partition("=")[2]]
        if any(value is None for value in values):
            return None
        known = [value for value in values if value is not None]
        if declared.takes == "none" and known and (option.attached or not parser.has_positional):
            return (
                translated("{word} is a flag, and is given the value {value}.").format(word=word, value=known[0]),
                self.texts["flag"],
                declared,
            )
        if declared.takes != "one":
            return None
        if not known:
            return (
                translated("{word} needs a value and is given none.").format(word=word),
                translated("Give {name} a value").format(name=word),
                declared,
            )
        if len(known) > 1 and not parser.has_positional:
            return (
                translated("{word} takes one value and is given {count}.").format(word=word, count=len(known)),
                self.texts["one_value"],
                declared,
            )
        return _describe_refused_value(word, known[0], declared)


def _describe_refused_value(
    word: str, value: str, declared: DeclaredOption
) -> tuple[Text, Text, DeclaredOption] | None:
    """A value that is no number where one is read, or none of the choices."""
    call = declared.call
    kind = call.keyword_node("type")
    name = kind.id if isinstance(kind, ast.Name) else None
    if kind is not None and name is None:
        return None
    if name in _NUMBERS:
        try:
            _NUMBERS[name](value)
        except ValueError:
            sentence = translated("{word} is parsed as {type}, but {value} is no valid {type}.").format(
                word=word, type=name, value=value
            )
            return sentence, translated("Give a number that {type}(...) accepts").format(type=name), declared
    choices = call.keyword("choices") if call.has("choices") else None
    if choices is None or not choices.known or name not in (None, "str", "int"):
        return None
    if not isinstance(choices.value, list | tuple) or not choices.value:
        return None
    if value in {str(one) for one in choices.value}:
        return None
    listed = ", ".join(str(one) for one in choices.value)
    sentence = translated("{word} is {value}, which is not among its choices.").format(word=word, value=value)
    return sentence, translated("Use one of {choices}").format(choices=listed), declared


def _option_as_written(option: Option) -> str | None:
    """The option as it is written, without a value; None if it is not known or no option to argparse."""
    value = option.word.value
    if value is None or not value.startswith("-") or " " in value or value in ("-", "--"):
        return None
    if value[1:2].isdigit() or value[1:2] == ".":
        return None
    return value.partition("=")[0]
