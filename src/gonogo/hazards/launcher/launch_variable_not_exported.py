from functools import lru_cache

import msgspec

from gonogo.evidence.source_file import Place, SourceFile
from gonogo.hazards.facts.shell_lines import ShellLine, is_shell_script, lines_from
from gonogo.hazards.rule import Findings, Fix, Hazard, Launch, Pattern, Run, Text, translated

_FRAMEWORK_LAUNCH_VARIABLES = ("NPROC_PER_NODE", "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
_ASSIGNMENT_LINE_PATTERN = Pattern(
    r"""^[ \t]*(?:[A-Za-z_]\w*=(?:"[^"\n]*"|'[^'\n]*'|\$\([^()\n]*\)|[^\s"'`;&|()<>#]*)[ \t]*)+$"""
)
_ASSIGNED_NAME_PATTERN = Pattern(r"""(?:^|[ \t])([A-Za-z_]\w*)=""")
_EXPORTS_ALL_PATTERN = Pattern(r"^[ \t]*set (?:-a\b|-o allexport)|^[ \t]*set -[a-z]*a")


class _ShellAssignments(msgspec.Struct, frozen=True):
    """A command that only sets shell variables (``A=1 B=2``), without ``export``: no program gets them."""

    names: tuple[str, ...]
    place: Place
    line: int


class LaunchVariableNotExported(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Assignments before the command, to names that only programs read, that the command does not get."""
        source = launch.source
        if not is_shell_script(source):
            return
        text = source.text
        first = launch.words[0].place if launch.words else launch.place
        command = source.place(first.start, launch.place.end) if first.source is source else first
        for assignments in _unexported_assignments(source):
            if assignments.place.start >= command.start:
                break
            names = [name for name in assignments.names if self._is_not_exported(name, launch, text, assignments)]
            if not names or _EXPORTS_ALL_PATTERN.search(text):
                continue
            cut = _empty_lines(assignments, command.start)
            yield self.finding(
                self.texts["cause"].format(
                    line=assignments.line,
                    names=Text(", ".join(names), "、".join(names)),
                    launcher=launch.launcher,
                    at=command.line,
                    it="it" if len(names) == 1 else "them",
                ),
                cure=(
                    *((self.texts["no_empty_line"],) if cut is not None else ()),
                    self.texts["cure"].format(
                        name=names[0],
                        export=translated("Export the variable")
                        if cut is None
                        else translated("Or export the variable"),
                    ),
                ),
                spans=(
                    assignments.place.span(translated("set here but not exported")),
                    command.span(translated("not passed on to this command")),
                ),
                fixes=self._build_fix(assignments, cut),
            )

    def _build_fix(self, assignments: _ShellAssignments, blank_lines: Place | None) -> Fix:
        if blank_lines is not None:
            return self.fix(translated("remove the empty line"), blank_lines.edit(""), safe=False)
        start = assignments.place.source.place(assignments.place.start, assignments.place.start)
        return self.fix(translated("export the variable"), start.edit("export "), safe=False)

    def _is_not_exported(self, name: str, launch: Launch, text: str, assignments: _ShellAssignments) -> bool:
        framework = launch.launcher in ("swift", "llamafactory") and name in _FRAMEWORK_LAUNCH_VARIABLES
        if not framework and self.patterns["environment_variable"].search(name) is None:
            return False
        place = launch.variable(name).place
        own = assignments.place
        elsewhere = place is None or not own.start <= place.start < own.end
        if (elsewhere and not launch.variable(name).absent) or f"export {name}" in text:
            return False
        return f"${name}" not in text and f"${{{name}" not in text


@lru_cache(maxsize=8)
def _unexported_assignments(source: SourceFile) -> tuple[_ShellAssignments, ...]:
    """All such commands of a script; one that continues over several lines counts as one."""
    found: list[_ShellAssignments] = []
    parts: list[ShellLine] = []
    for line in lines_from(source, 1):
        parts.append(line)
        if line.continues_on_next_line:
            continue
        text = " ".join(part.text[:-1] if part.continues_on_next_line else part.code for part in parts)
        if "=" in text and _ASSIGNMENT_LINE_PATTERN.match(text) is not None:
            names = tuple(match.group(1) for match in _ASSIGNED_NAME_PATTERN.finditer(text))
            indent = len(parts[0].text) - len(parts[0].text.lstrip())
            last = next(part for part in reversed(parts) if part.text.strip(" \t\\"))
            found.append(_ShellAssignments(names, Place(source, parts[0].start + indent, last.end), parts[0].number))
        parts = []
    return tuple(found)


def _empty_lines(assignments: _ShellAssignments, end_offset: int) -> Place | None:
    """The empty lines that cut off assignments that end in a backslash from the command at ``end_offset``."""
    source = assignments.place.source
    gap = source.data[assignments.place.end : end_offset]
    if not assignments.place.text.endswith("\\") or gap.strip():
        return None
    after = source.line_start(source.line_of(assignments.place.end) + 1)
    return source.place(after, source.line_start(source.line_of(end_offset)))
