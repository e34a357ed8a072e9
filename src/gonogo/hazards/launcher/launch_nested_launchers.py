from gonogo.evidence.paths import is_file
from gonogo.hazards.facts.launch_facts import TORCHRUN
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Text, translated, whole_number

_LAUNCHER_PROGRAMS = frozenset(
    {"torchrun", "deepspeed", "accelerate", "accelerate-launch", "swift", "llamafactory-cli"}
)
_INTERPRETERS = frozenset({"python", "python3"})


class LaunchNestedLaunchers(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A launcher or an interpreter in the place of the program."""
        if launch.launcher not in (*TORCHRUN, "deepspeed", "accelerate"):
            return
        program = launch.program.string
        options = launch.launcher_options
        if program is None or launch.program_kind == "module" or options.get("module").known:
            return
        without_python = options.get("no_python").known
        if program not in _LAUNCHER_PROGRAMS and (program not in _INTERPRETERS or without_python):
            return
        if is_file(launch.cwd / program):
            return
        count = whole_number(launch.processes_per_node)
        yield self.finding(
            self.texts["counts_multiply_cause"].format(
                launcher=launch.launcher, program=program, count=_count_text(count)
            )
            if without_python
            else self.texts["program_not_python_cause"].format(launcher=launch.launcher, program=program),
            cure=(
                translated("Keep one launcher: remove `{program}`").format(program=program)
                if program in _INTERPRETERS
                else self.texts["cure"].format(
                    launcher=launch.launcher,
                    program=program,
                    number=Text(f" ({count})", f"（{count}）") if count else "",
                )
            ),
            spans=launch.program.span() or launch.place.span(),
        )


def _count_text(count: int | None) -> Text:
    return Text(f"{count} ", f" {count} 个") if count else Text("", "所有")
