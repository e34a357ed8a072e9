import re

from gonogo.hazards.facts.shell_lines import is_shell_script
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Pattern, Refusal, Run, Text


class LaunchCrlfLineEnds(Hazard):
    """The launch script has Windows line ends.
    ## What happens
    "/bin/bash^M: bad interpreter", "$'\\r': command not found", "--task_name: command not found", or a path that
    "does not exist" although it does: its name ends in a carriage return.
    ## Why
    A shell takes the carriage return of `\\r\\n` as a character of the line. A backslash before it continues nothing,
    so each option line runs as a command of its own, and the last word of every command has `\\r` at its end.
    ## Example
    ```text
    # wrong: what `cat -A launch.sh` shows
    torchrun --nproc_per_node 4 train.py \\^M$
    # right
    torchrun --nproc_per_node 4 train.py \\$
    ```
    ## Cure
    `dos2unix launch.sh` or `sed -i 's/\\r$//' launch.sh`; in git: `*.sh text eol=lf` in .gitattributes.
    ## When it is safe
    Never on Linux.
    ## Sources
    - https://github.com/NeuSpeech/EEG-To-Text/issues/2: a training script whose options ran as commands
    - https://github.com/OpenBMB/MiniCPM-o-Demo/issues/19: "$'\\r': command not found"
    """

    name = "launch-crlf-line-ends"
    title = Text("The launch script has Windows line ends", "启动脚本使用了 Windows 换行符（CRLF）")
    refusal = Refusal(
        Pattern(r"\$'\\r': command not found|are not used by the HfArgumentParser: \[.*'\\r'"), Certainty.LIKELY
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Carriage returns before the ends of the command's lines."""
        source = launch.source
        if b"\r\n" not in source.data or not is_shell_script(source):
            return
        line = launch.place.line
        if not source.line_bytes(line).endswith(b"\r\n"):
            return
        places = [source.place(found.start(), found.start() + 1) for found in re.finditer(rb"\r\n", source.data)]
        yield self.finding(
            Text(
                "{count} lines of {path} end in a carriage return (\\r\\n). The shell takes it for a part of the last "
                "word of each line, and a backslash before it continues nothing.",
                "{path} 有 {count} 行以回车结尾（\\r\\n）。shell 会把它当作每行最后一个词的一部分，其前的反斜杠也不再续"
                "行。",
            ).format(count=len(places), path=source.path),
            cure=Text(
                "Give the file Unix line ends: sed -i 's/\\r$//' {path}", "改为 Unix 换行：sed -i 's/\\r$//' {path}"
            ).format(path=source.path),
            certainty=Certainty.CERTAIN if _matters(launch, len(places)) else Certainty.POSSIBLE,
            spans=launch.place.span(),
            confirm=Text(
                "The last word of the command is one that a carriage return spoils, a file's name for one",
                "命令的最后一个词会因回车而失效，例如文件名",
            ),
            fixes=self.fix(Text("take the carriage returns out", "去掉回车符"), *(place.edit("") for place in places)),
        )


def _matters(launch: Launch, lines: int) -> bool:
    """Whether a carriage return surely changes the run: at a command's one line, it may end a word that bears it."""
    return lines > 1 or launch.place.text.rstrip("\r\n").endswith(".py")
