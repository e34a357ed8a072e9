"""The parts of a report on ``--life`` other than findings: what was covered, what was not, and why."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from gonogo.evidence.rehearsal.life_table import life_report
from gonogo.evidence.rehearsal.lives import RESULT_STAGES
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.evidence.rehearsal.result_table import result_report
from gonogo.finding import Skipped, Text, translated
from gonogo.finding.lives.life_report import LifeReport
from gonogo.finding.remedy import GapRemedy, Purpose, Reason, rehearse_again
from gonogo.rehearse.lives import CHECKPOINT_PROGRAMS_MODULE, has_saved_checkpoint, is_completed

_RESUME = translated("whether the run can be resumed")
_NOTHING_SAVED = translated(
    "nothing was saved in the rehearsed steps: rehearse more (--steps N), or have the program save earlier"
)
_FAILED_BEFORE_KILL = translated("the run failed before it was killed")
_FAILED_BEFORE = translated("the run failed before that")
_RESUMES_FROM_NOTHING = translated(
    "when run again, the same command reads nothing that it saved: specify how to resume, with "
    '--resume-with "--resume_from_checkpoint FOLDER"'
)
_NO_STEP = translated("the resumed program ended without another step: it had nothing left to train")
_RESULT_STAGES_TEXT = translated("converting, merging or loading the checkpoint")
_STAGE_LABELS = {
    "convert": translated("converting the checkpoint"),
    "merge": translated("merging the adapter"),
    "serve": translated("loading the result"),
}
_DEFAULT_STAGE_PROGRAMS = {
    "merge": translated("PEFT's merge_and_unload"),
    "serve": translated("transformers' from_pretrained"),
    "vllm": translated("vLLM's loaders"),
}
_NO_FOLDER = translated(
    "nothing that was written looks like its input (an adapter_config.json for merge, a config.json for serve): "
    "specify the command, with --{stage}-with"
)
_NOT_CALLED = translated("the program loaded the checkpoint but never ran a model: have it run the model once")
_NAMES_DIFFER = translated("they were saved as flat partitions, and the loaded model has no weights with their names")
_WRITTEN_BY_UNTRACKED_PROCESS = Reason(
    translated("{files} was created by a process that was not tracked: have the program convert in its own process"),
    rehearse_again(purpose=Purpose.AFTER_CHANGE),
)
_SENT_BY_UNREHEARSED_RANK = Reason(
    translated("they were sent by a rank that was not rehearsed (--ranks all)"),
    rehearse_again("--ranks", "all", purpose=Purpose.ALL_RANKS),
)


def is_life_complete(record: RehearsalRecord) -> bool:
    """Whether both lives were completed, so that a GO covers them; always True without ``--life``."""
    if not record.life_part:
        return True
    first = record.first_life or record
    return has_saved_checkpoint(first) and not any(True for _ in skipped_life_checks(record))


def life_coverage(record: RehearsalRecord) -> Iterator[Text]:
    """A sentence about both lives, and the commands of later stages."""
    life = life_report(record)
    first = record.first_life
    if life is not None and first is not None:
        yield _resume_text(life)
    result = result_report(record)
    if result is not None and life is None:
        steps = max((rank.life.at_save.step for rank in record.ranks if rank.life and rank.life.at_save), default=0)
        yield translated("saved after step {step} by {world} ranks").format(step=steps, world=record.world_size)
    for stage in result.stages if result is not None else ():
        command = Text(*[" ".join(stage.command)] * 2)
        if CHECKPOINT_PROGRAMS_MODULE in stage.command:
            kind, *given = stage.command[stage.command.index(CHECKPOINT_PROGRAMS_MODULE) + 1 :]
            program = _DEFAULT_STAGE_PROGRAMS[kind]
            command = Text(*(" ".join([words, *given]) for words in (program.en, program.zh)))
        yield translated("{stage}: {command}").format(stage=_STAGE_LABELS[stage.stage], command=command)


def _resume_text(life: LifeReport) -> Text:
    return translated(
        "the run with {world} ranks saved after step {step} ({files} files with state) and was killed; it was "
        "resumed on {after} ranks with: {command}"
    ).format(
        world=life.world_before,
        step=life.steps_before_save,
        files=len(life.files),
        after=life.world_after,
        command=" ".join(life.resumed_with),
    )


def skipped_life_checks(record: RehearsalRecord) -> Iterator[Skipped]:
    """Which parts of the lives and stages were not observed, and why."""
    stages = record.life_stages or ("resume",)
    if record.life_part == "first" and ("resume" in stages or not has_saved_checkpoint(record)):
        failed = any(rank.outcome not in ("completed", "out-of-memory") for rank in record.ranks)
        resumes = "resume" in stages
        why = (_FAILED_BEFORE_KILL if resumes else _FAILED_BEFORE) if failed else _NOTHING_SAVED
        remedy = None if failed else rehearse_again("--steps", str(10 * record.steps), purpose=Purpose.MORE_STEPS)
        yield Skipped(_RESUME if resumes else _RESULT_STAGES_TEXT, why, remedy)
        return
    yield from _skipped_result_stages(record)
    life = life_report(record)
    if life is None:
        return
    if not life.trains_on:
        yield Skipped(_RESUME, _NO_STEP)
    elif record.resumes_as_given and not any(
        row.status in ("restored", "partly", "other-state", "other-dtype", "unknown") for row in life.states
    ):
        options = "--resume-with=--resume_from_checkpoint FOLDER"
        yield Skipped(_RESUME, _RESUMES_FROM_NOTHING, rehearse_again(options, purpose=Purpose.NAME_OPTIONS))
    unknown = [row for row in life.states if row.status == "unknown"]
    files = dict.fromkeys(os.path.basename(file) for row in unknown for file in row.read_from)
    for rows, reason in (
        (
            [row for row in unknown if row.read_from],
            _WRITTEN_BY_UNTRACKED_PROCESS.format(files=", ".join([*files][:3])),
        ),
        ([row for row in unknown if not row.read_from], _SENT_BY_UNREHEARSED_RANK),
    ):
        if rows:
            what = translated("whether {count} states of the resumed run were restored").format(count=len(rows))
            yield Skipped(what, reason.why, reason.remedy)


def _own_program(stage: str, record: RehearsalRecord) -> GapRemedy:
    """The rehearsal with a program of the user's that takes what was saved last."""
    written = [name for rank in (record.first_life or record).ranks if rank.life for name in rank.life.written]
    folder = os.path.dirname(written[-1]) if written else ""
    program = f"python {stage}.py {shlex.quote(folder or '.')}"
    return rehearse_again(f"--{stage}-with={program}", purpose=Purpose.NAME_PROGRAM, subject=f"{stage}.py")


def _skipped_result_stages(record: RehearsalRecord) -> Iterator[Skipped]:
    """Stages that were not reached, and what is unknown about the result."""
    done = [one.life_part for one in record.afterwards]
    missing = [stage for stage in RESULT_STAGES if stage in record.life_stages and stage not in done]
    if missing and missing[0] == record.life_part:
        missing = missing[1:]
        why = translated("not reached: {stage} failed").format(stage=_STAGE_LABELS[record.life_part])
    elif record.life_part in ("first", "second") and is_completed(record):
        why = _NO_FOLDER
    else:
        why = translated("not reached: the resumed run failed")
    for number, stage in enumerate(missing):
        remedy = _own_program(stage, record) if why is _NO_FOLDER and number == 0 else None
        yield Skipped(_STAGE_LABELS[stage], why.format(stage=stage), remedy)
    result = result_report(record)
    if result is not None and result.stages[-1].stage == "serve" and not result.is_loaded:
        yield Skipped(_STAGE_LABELS["serve"], _NOT_CALLED)
    unknown = [row for row in result.states if row.status == "unknown"] if result is not None else []
    if unknown:
        yield Skipped(
            translated("whether {count} weights of the result are the trained ones").format(count=len(unknown)),
            _NAMES_DIFFER,
        )


def _has_averages(record: RehearsalRecord) -> bool:
    moments = [rank.life.at_save for rank in (record.first_life or record).ranks if rank.life is not None]
    return any(state.kind == "average" for moment in moments if moment is not None for state in moment.held)


def unknown_life_checks(record: RehearsalRecord) -> Iterator[Skipped]:
    """What is unknown but doesn't affect the verdict."""
    life = life_report(record)
    if life is not None and life.data == "unknown":
        yield Skipped(
            translated("which batch the resumed run begins with"),
            translated(
                "its values are inconclusive: generated or identical rows, a different world size, or no batch "
                "after the save"
            ),
        )
    if life is not None and _has_averages(record) and not any(row.kind == "average" for row in life.states):
        yield Skipped(
            translated("the averaged weights (EMA) after the resume"),
            translated("the resumed program did not update them in the rehearsed steps: rehearse more (--steps N)"),
        )
    if life is not None and life.moments_not_tried:
        every = len(life.interruptions) + life.moments_not_tried
        yield Skipped(
            translated("{count} of {all} points at which the save could be interrupted").format(
                count=life.moments_not_tried, all=every
            ),
            translated(
                "at most 16 are tried, within --timeout, if training continues after a resume from the complete "
                "checkpoint"
            ),
        )
    if life is not None and len(life.saves) < record.saves_wanted:
        yield Skipped(
            translated("{count} of {all} saves").format(
                count=record.saves_wanted - len(life.saves), all=record.saves_wanted
            ),
            translated("the program did not save more often in the rehearsed steps: rehearse more (--steps N)"),
            rehearse_again("--steps", str(10 * record.steps), purpose=Purpose.MORE_STEPS),
        )
    for counter in life.counters if life is not None else ():
        if counter.status == "unknown":
            yield Skipped(
                translated("the value of {name} after the resume").format(name=counter.name),
                translated("its value before or after the resume is not known"),
            )
