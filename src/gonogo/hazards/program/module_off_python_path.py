import os

from gonogo.evidence.launch.command_line import quote_for_shell
from gonogo.evidence.run import ImportOutsideSysPath
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Text, translated


class ModuleOffPythonPath(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """An import of one of the project's modules, from a program in another folder."""
        for each in run.off_path:
            if each.optional:
                continue
            folder = os.path.relpath(each.folder, launch.cwd)
            before = launch.variable("PYTHONPATH").string
            value = f"{before}:{folder}" if before else folder
            edits = (launch.setting_variable("PYTHONPATH", value),) if _can_set_python_path(launch) else ()
            title = translated("Put the folder on PYTHONPATH")
            yield self.finding(
                self.texts["cause"].format(path=each.script.source.path, name=each.name, folder=_folder_text(folder)),
                certainty=Certainty.CERTAIN if each.surely and launch.cwd_known else Certainty.LIKELY,
                cure=_choose_cures(launch, each, value),
                spans=(each.script.place(each.node).span(), launch.place.span()),
                fixes=self.fix(title, *edits, safe=False) if edits else (),
                confirm=translated("python -c 'import {name}' fails in the program's folder").format(name=each.name),
            )


def _can_set_python_path(launch: Launch) -> bool:
    return launch.source.writable and launch.python_path_complete


def _folder_text(folder: str) -> Text:
    here = translated("the folder it is started from")
    return here if folder == "." else Text(folder, folder)


def _choose_cures(launch: Launch, off_path: ImportOutsideSysPath, value: str) -> tuple[Text, ...]:
    first = translated("Start the program with PYTHONPATH={value} (there is nothing to install)").format(
        value=quote_for_shell(value)
    )
    program = launch.program.string
    if (
        off_path.folder != os.path.realpath(launch.cwd)
        or not program
        or not program.endswith(".py")
        or program[0] in "/."
    ):
        return (first,)
    module = program.removesuffix(".py").replace(os.sep, ".")
    if not all(part.isidentifier() for part in module.split(".")):
        return (first,)
    return first, translated("Or start it as a module, so that Python searches the current folder: -m {module}").format(
        module=module
    )
