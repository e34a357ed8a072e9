import os

from gonogo.evidence.launch.command_line import quoted
from gonogo.evidence.run import OffPath
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Text


class ModuleOffPythonPath(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """An import of a module of the project, from a program that lies in another folder."""
        for each in run.off_path:
            folder = os.path.relpath(each.folder, launch.cwd)
            before = launch.variable("PYTHONPATH").string
            value = f"{before}:{folder}" if before else folder
            edits = (launch.setting_variable("PYTHONPATH", value),) if _can_set(launch) else ()
            title = Text("Put the folder on PYTHONPATH", "把该目录加入 PYTHONPATH")
            yield self.finding(
                Text(
                    "{path} imports {name}, which lies in {folder}. Python looks in the folder of the program that is "
                    "started, not in the one the command is typed in, and PYTHONPATH names no other.",
                    "{path} 导入 {name}，它位于{folder}。Python 只在被启动程序所在的目录中查找，而不是输入命令的目录，"
                    "PYTHONPATH 也没有指定其他目录。",
                ).format(path=each.script.source.path, name=each.name, folder=_shown(folder)),
                certainty=Certainty.CERTAIN if each.surely and launch.cwd_known else Certainty.LIKELY,
                cure=_cures(launch, each, value),
                spans=(each.script.place(each.node).span(), launch.place.span()),
                fixes=self.fix(title, *edits, safe=False) if edits else (),
                confirm=()
                if each.surely and launch.cwd_known
                else Text(
                    "python -c 'import {name}' fails in the program's folder",
                    "在程序所在目录执行 python -c 'import {name}' 会失败",
                ).format(name=each.name),
            )


def _can_set(launch: Launch) -> bool:
    return launch.source.writable and launch.python_path_complete


def _shown(folder: str) -> Text:
    here = Text("the folder it is started in", "启动时所在的目录")
    return here if folder == "." else Text(folder, folder)


def _cures(launch: Launch, each: OffPath, value: str) -> tuple[Text, ...]:
    first = Text(
        "Start it with PYTHONPATH={value} (there is nothing to install)",
        "启动时加上 PYTHONPATH={value}（无需安装任何包）",
    ).format(value=quoted(value))
    program = launch.program.string
    if each.folder != os.path.realpath(launch.cwd) or not program or not program.endswith(".py") or program[0] in "/.":
        return (first,)
    module = program.removesuffix(".py").replace(os.sep, ".")
    if not all(part.isidentifier() for part in module.split(".")):
        return (first,)
    return first, Text(
        "Or start it as a module, for which Python looks in the current folder: -m {module}",
        "或者以模块方式启动，此时 Python 会在当前目录查找：-m {module}",
    ).format(module=module)
