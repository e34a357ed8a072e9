"""Runs a launch script and answers what it would have started."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gonogo.evidence.launch.words import SHELLS, shortened
from gonogo.finding import Text
from gonogo.finding.errors import UserError
from gonogo.rehearse.kept.watch import under_watch
from gonogo.rehearse.launch.launch import Surroundings
from gonogo.rehearse.shell.nested import is_shell_script
from gonogo.rehearse.shell.session import ScriptCommand, ShellSession, StandInSettings

# What a script still does after its first launch: the next stage, a wait, a copy of the results.
_AFTER_LAUNCH = 10.0
# Programs that a script leaves behind in the background get this long to be taken down.
_IN_BACKGROUND = 5.0
_LONGEST_OUTPUT = 1 << 20


@dataclass(frozen=True)
class ScriptRun:
    """What came of a script. ``files`` is a folder that mirrors the root folder, with what the script wrote."""

    calls: tuple[ScriptCommand, ...]
    left_out: tuple[list[str], ...]
    files: Path
    status: int
    output: tuple[str, ...]
    """The last lines that it printed."""


def is_script_call(words: Sequence[str]) -> bool:
    """Whether a command is a shell with a script, or a shell script by its path."""
    name = os.path.basename(words[0])
    return name in SHELLS or (os.sep in words[0] and os.path.isfile(words[0]) and is_shell_script(words[0]))


def run_script(
    words: Sequence[str],
    surroundings: Surroundings,
    *,
    environment: Mapping[str, str],
    cwd: str,
    python: str,
    packages: Sequence[Path] = (),
    scratch: Path,
    timeout: float,
) -> ScriptRun:
    """Run a script for real, with stand-ins.

    Raises UserError for a script that isn't there, that bash can't parse, that can't be followed, or that starts
    nothing.
    """
    path = environment.get("PATH", os.defpath)
    bash = shutil.which("bash", path=path)
    if bash is None:
        raise UserError(
            Text(
                "`{command}` needs bash, which is not on PATH: give the launch command itself",
                "`{command}` 需要 bash，但 PATH 中没有：请直接给出启动命令",
            ).format(command=shortened(words))
        )
    words = _as_bash(words)
    _check_script(words, bash, cwd)
    settings = StandInSettings(surroundings, python, bash, path, environment.get("TMPDIR"), [str(p) for p in packages])
    session = ShellSession.create(Path(tempfile.mkdtemp(prefix="shell-", dir=scratch)), settings)
    status, output = _run(session, words, environment, cwd, timeout)
    failure = session.failure()
    if failure is not None:
        raise UserError(
            Text(
                "`{command}` can't be followed: {failure}; give the launch command itself",
                "无法跟踪 `{command}`：{failure}；请直接给出启动命令",
            ).format(command=shortened(words), failure=failure)
        )
    run = ScriptRun(tuple(session.calls()), tuple(session.left_out()), session.files, status, output)
    if not run.calls:
        raise _started_nothing(words, run, timeout)
    return run


def _as_bash(words: Sequence[str]) -> list[str]:
    """A script called by its path is run by bash, as its first line has it."""
    name = os.path.basename(words[0])
    if name in SHELLS and name not in ("bash", "sh", "dash"):
        raise UserError(
            Text(
                "{shell} scripts can't be rehearsed, only bash and sh ones: give the launch command itself",
                "只能排练 bash 和 sh 脚本，不支持 {shell}：请直接给出启动命令",
            ).format(shell=name)
        )
    return list(words) if name in SHELLS else ["bash", *words]


def _check_script(words: Sequence[str], bash: str, cwd: str) -> None:
    script = next((word for word in words[1:] if not word.startswith(("-", "+"))), None)
    if script is None or any(word.startswith("-") and not word.startswith("--") and "c" in word for word in words[1:2]):
        return
    path = os.path.join(cwd, script)
    if not os.path.isfile(path):
        what = Text("is a directory", "是一个目录") if os.path.isdir(path) else Text("does not exist", "不存在")
        raise UserError(
            Text("the script {script} {what} (looked for in {cwd})", "脚本 {script} {what}（在 {cwd} 中查找）").format(
                script=script, what=what, cwd=cwd
            )
        )
    parsed = subprocess.run([bash, "-n", path], capture_output=True, cwd=cwd, stdin=subprocess.DEVNULL, check=False)
    if parsed.returncode != 0:
        message = parsed.stderr.decode(errors="replace").strip().splitlines()
        first = message[0].removeprefix(f"{path}: ") if message else f"status {parsed.returncode}"
        raise UserError(
            Text("bash can't parse {script}: {message}", "bash 无法解析 {script}：{message}").format(
                script=script, message=first
            )
        )


def _run(
    session: ShellSession, words: Sequence[str], environment: Mapping[str, str], cwd: str, timeout: float
) -> tuple[int, tuple[str, ...]]:
    """Run the script to its end; its status (None's place is taken by -9 where it was ended) and last lines."""
    process = subprocess.Popen(
        under_watch([str(session.bin / os.path.basename(words[0])), *words[1:]], looks=True),
        env=session.inner_environment(environment),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = bytearray()
    deadline = time.monotonic() + timeout
    launched_at: float | None = None
    ended_at: float | None = None
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if selector.select(timeout=0.05):
                    block = os.read(process.stdout.fileno(), 1 << 16)
                    if not block:  # the script and all that it left in the background have ended
                        break
                    output += block
                    del output[:-_LONGEST_OUTPUT]
                now = time.monotonic()
                if launched_at is None and (session.folder / "calls").stat().st_size:
                    launched_at = now
                if ended_at is None and process.poll() is not None:
                    ended_at = now
                if ended_at is not None and now > ended_at + _IN_BACKGROUND:
                    break
                if launched_at is not None and now > launched_at + _AFTER_LAUNCH:
                    break
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        status = process.wait()
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return status, tuple(lines[-20:])


def _started_nothing(words: Sequence[str], run: ScriptRun, timeout: float) -> UserError:
    last = "; ".join(line.strip()[:200] for line in run.output[-2:])
    said = Text(": {last}", "：{last}").format(last=last) if last else Text("", "")
    command = shortened(words)
    if run.status == -signal.SIGKILL:
        return UserError(
            Text(
                "`{command}` had started no training after {seconds:.0f} s (its output so far{said}): give the launch "
                "command itself, or a longer --timeout",
                "`{command}` 在 {seconds:.0f} 秒内没有启动训练（目前的输出{said}）：请直接给出启动命令，或用 --timeout "
                "给出更长的时间",
            ).format(command=command, seconds=timeout, said=said)
        )
    if run.status != 0:
        return UserError(
            Text(
                "`{command}` ended with status {status} before it started a training{said}",
                "`{command}` 在启动训练之前以状态 {status} 退出{said}",
            ).format(command=command, status=run.status, said=said)
        )
    others = "; ".join(shortened(words, 80) for words in run.left_out[:4])
    hint = Text("; it was not run: {others}", "；以下命令未执行：{others}").format(others=others)
    return UserError(
        Text(
            "`{command}` ended without starting a training (deepspeed, torchrun, accelerate launch or "
            "python){said}{hint}",
            "`{command}` 结束时没有启动任何训练（deepspeed、torchrun、accelerate launch 或 python）{said}{hint}",
        ).format(command=command, said=said, hint=hint if others else "")
    )
