"""One script run by real bash and read by gonogo: which argument lists reach its programs, and where the two differ."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from types import TracebackType

from gonogo.evidence.shell.script_commands import read_shell
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Text

# A bash that stays: each script runs in a shell forked of it, which costs a tenth of a new one. `prog` tells what it
# gets.
_DRIVER = r"""
prog() { printf '%s\0' "$#" "$PWD" "$@" >&9; }
while IFS= read -r __box && IFS= read -r __out; do
    ( cd "$__box"; exec </dev/null >/dev/null 2>&1 9>"$__out"; BASH_ARGV0=$__box/run.sh
      unset OLDPWD; IFS=$' \t\n'; . "$__box/run.sh" )
    echo done
done
"""
_FILES = ("a.json", "b.json", "sub/x1", "sub/x2")

Call = tuple[str, tuple[str, ...]]
"""The folder in which a program is started, and its words."""


class Bash:
    """Bash and gonogo, side by side."""

    def __init__(self) -> None:
        self._folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="gonogo-bash-")))
        environment = {"HOME": str(self._folder), "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8"}
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", _DRIVER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip
        self._count = 0
        self.unknown = Counter[str]()
        """Why gonogo did not tell a program's words, and how often."""
        self.settled = 0
        """Programs whose words gonogo told."""

    def __enter__(self) -> Bash:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
        shutil.rmtree(self._folder)

    def differences(self, files: dict[str, str]) -> list[str]:
        """What gonogo tells otherwise than bash does it; nothing where it agrees, or says that it can't tell."""
        self._count += 1
        box = self._folder / "boxes" / f"box{self._count}"
        for name in _FILES:
            (box / name).parent.mkdir(parents=True, exist_ok=True)
            (box / name).write_text("")
        for name, text in files.items():
            (box / name).write_bytes(text.encode())
        read = self._read(box)
        ran = self._run(box)
        shutil.rmtree(box)
        return self._compared(read, ran)

    def _run(self, box: Path) -> dict[str, list[Call]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        out = self._folder / "out"
        self._process.stdin.write(f"{box}\n{out}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"
        parts = out.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]
        found: dict[str, list[Call]] = defaultdict(list)
        while parts:
            count, cwd = int(parts[0]), parts[1]
            words, parts = parts[2 : 2 + count], parts[2 + count :]
            found[words[0]].append((cwd, tuple(words[1:])))
        return found

    def _read(self, box: Path) -> dict[str, list[tuple[str | None, tuple[str, ...] | None, str]]]:
        source = SourceFile.read(box / "run.sh")
        before = {name: os.environ.get(name) for name in ("HOME",)}
        os.environ["HOME"] = str(self._folder)
        try:
            notes: list[Text] = []
            commands = read_shell(source, box, cwd_known=True, arguments=(), notes=notes)
        finally:
            os.environ.update({name: value for name, value in before.items() if value is not None})
        found: dict[str, list[tuple[str | None, tuple[str, ...] | None, str]]] = defaultdict(list)
        for note in [source.gap] if source.gap is not None else notes:
            found[""].append((None, None, note.en))
        for command in commands:
            if command.words[0].value != "prog" or len(command.words) < 2:
                continue
            words = command.words[2:]
            values = [word.value for word in words]
            why = next((str(word.reason and word.reason.en) for word in words if word.value is None), "")
            told = None if None in values else tuple(value for value in values if value is not None)
            cwd = str(command.cwd) if command.cwd_known else None
            found[command.words[1].value or ""].append((cwd, told, why))
        return found

    def _compared(
        self, read: dict[str, list[tuple[str | None, tuple[str, ...] | None, str]]], ran: dict[str, list[Call]]
    ) -> list[str]:
        noted = read.pop("", [])
        self.unknown.update("said" for _ in noted)
        wrong: list[str] = []
        for number in sorted({*read, *ran}, key=int):
            ours, theirs = read.get(number, []), ran.get(number, [])
            if not ours and not noted:
                wrong.append(f"prog {number}: bash starts it as {theirs}, gonogo not at all")
                continue
            reached = list(theirs)
            for cwd, words, why in ours:
                if words is None:
                    self.unknown[why.partition("`")[0][:30] or why[:30]] += 1
                elif theirs:
                    self.settled += 1
                    if not any(words == other and cwd in (None, at) for at, other in reached):
                        wrong.append(f"prog {number}: gonogo {cwd, words}, bash {theirs}")
        return wrong
