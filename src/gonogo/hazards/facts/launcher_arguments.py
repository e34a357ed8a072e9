"""The ``--local_rank`` that some launchers put before a program's own arguments."""

from __future__ import annotations

from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.run import Run

_UNDERSCORE, _HYPHEN = "--local_rank", "--local-rank"


def local_rank_spellings(launch: Launch, run: Run) -> tuple[str, ...]:
    """How the launcher may spell the option that it passes, by torch's release; empty if it passes none."""
    options = launch.launcher_options
    if launch.launcher == "deepspeed":
        return () if "no_local_rank" in options else (_UNDERSCORE,)
    if launch.launcher != "torch.distributed.launch" or "use_env" in options or "use-env" in options:
        return ()
    if run.environment.within("torch", "<2.0"):
        return (_UNDERSCORE,)
    return (_HYPHEN,) if run.environment.within("torch", ">=2.0") else (_HYPHEN, _UNDERSCORE)
