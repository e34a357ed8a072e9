from functools import lru_cache

from gonogo.evidence.source_file import SourceFile
from gonogo.hazards.facts.shell_lines import is_shell_script, lines_from
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Pattern, Run, translated

_VARIABLE_REFERENCE_PATTERN = Pattern(r"\$\{?([A-Za-z_]\w{2,})(\}|\b)")
_SET_VARIABLE_PATTERN = Pattern(
    r"(?:^|[\s;&|({])(?:(?:export|local|readonly|declare|typeset)(?: -\w+)* )?([A-Za-z_]\w*)\+?="
    r"|(?:^|[\s;])for ([A-Za-z_]\w*) in|\bread (?:-\w+ )*([A-Za-z_]\w*)|\bmapfile (?:-t )?([A-Za-z_]\w*)"
    r"|\$\{([A-Za-z_]\w*):?="
)
_COMMAND_SEPARATORS_TO_NEWLINES = str.maketrans(dict.fromkeys(";&|(){}`", "\n"))
_ASSIGNMENT_PREFIX_WORDS = frozenset(
    ("export", "local", "readonly", "declare", "typeset", "env", "then", "do", "else", "!")
)


class LaunchMisspeltShellVariable(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Names in the command's lines that the script never sets, but that are one typo from one that it sets."""
        source = launch.source
        if not is_shell_script(source):
            return
        for line in lines_from(source, source.line_of(launch.place.start)):
            for match in _VARIABLE_REFERENCE_PATTERN.finditer(line.code) if "$" in line.code else ():
                name = match.group(1)
                if name in _possibly_set_variables(source) or launch.variable(name).known:
                    continue
                meant = next(
                    (one for one in _certainly_set_variables(source.text) if _is_one_edit_apart(name, one)), None
                )
                if meant is None:
                    continue
                word = line.place(match.start(1), match.end(1))
                at = source.data.find(meant.encode())
                yield self.finding(
                    self.texts["cause"].format(name=name, meant=meant, path=source.path, line=source.line_of(at)),
                    certainty=_judge_certainty(line.code[: match.start()]),
                    cure=translated("Use ${meant} instead").format(meant=meant),
                    spans=(
                        word.span(translated("this variable is set nowhere")),
                        source.place(at, at + len(meant)).span(
                            translated("the variable that was probably meant is set here")
                        ),
                    ),
                    fixes=self.fix(translated("use ${name} instead").format(name=meant), word.edit(meant), safe=False),
                )
            if not line.continues_on_next_line and line.end >= launch.place.end:
                return


def _judge_certainty(before: str) -> Certainty:
    """Whether the run stops: an argument that vanishes or a path that starts at ``/`` stops it.

    Of ``--output_dir runs/$tag/$task`` a usable path is left, of another folder.
    """
    return Certainty.POSSIBLE if before and before[-1] not in " \t\"'=" else Certainty.LIKELY


@lru_cache(maxsize=8)
def _possibly_set_variables(source: SourceFile) -> frozenset[str]:
    """The variables that a script may set anywhere, arguments such as ``lr=$LR`` among them."""
    found = _SET_VARIABLE_PATTERN.finditer(source.text)
    return frozenset(group for match in found for group in match.groups() if group)


@lru_cache(maxsize=8)
def _certainly_set_variables(text: str) -> tuple[str, ...]:
    """The variables that a script certainly sets: ``lr=$LR`` after a command is an argument of it."""
    found = {
        group for match in _SET_VARIABLE_PATTERN.finditer(text) for group in match.groups()[1:] if group
    }  # for, read, mapfile, ${NAME:=...}
    for command in text.replace("\\\n", " ").translate(_COMMAND_SEPARATORS_TO_NEWLINES).splitlines():
        for word in command.split():
            name, equals, _ = word.partition("=")
            if equals and name.removesuffix("+").isidentifier():
                found.add(name.removesuffix("+"))
            elif word not in _ASSIGNMENT_PREFIX_WORDS and not word.startswith("-"):
                break
    return tuple(sorted(found))


def _is_one_edit_apart(name: str, other: str) -> bool:
    """Whether one letter was omitted, inserted or changed, or two neighbours swapped; at least 4 letters."""
    if name == other or min(len(name), len(other)) < 4 or abs(len(name) - len(other)) > 1:
        return False
    if name.isupper() != other.isupper():
        return name.lower() == other.lower()
    head = 0
    while head < min(len(name), len(other)) and name[head] == other[head]:
        head += 1
    if len(name) == len(other):
        differ = [index for index in range(len(name)) if name[index] != other[index]]
        if any(name[index].isdecimal() or other[index].isdecimal() for index in differ):
            return False  # NODE0 and NODE1 are two names
        swapped = len(differ) == 2 and differ[1] == differ[0] + 1 and name[differ[0]] == other[differ[1]]
        return len(differ) == 1 or (swapped and name[differ[1]] == other[differ[0]])
    longer, shorter = (name, other) if len(name) > len(other) else (other, name)
    extra = longer[head]
    if extra.isdecimal() or extra == "_" or (extra in "sS" and head == len(longer) - 1):
        return False  # GPU and GPUS, LR and LR1: often two things
    return longer[:head] + longer[head + 1 :] == shorter
