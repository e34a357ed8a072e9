"""What keeps a rehearsal from a verdict states its remedy as data, and that is the report's next command."""

from __future__ import annotations

import contextlib
import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Literal

import jsonschema
import msgspec
import pytest
import samples
from lacking_worlds import World, rehearsed_lacking

import gonogo
from gonogo.cli.schemas.report import report_schema
from gonogo.evidence.prepared import PreparedStandIns, prepared_parent_override
from gonogo.evidence.rehearsal.record import (
    FailedLookup,
    Failure,
    Frame,
    MissingInput,
    RankRecord,
    RehearsalRecord,
    UnsupportedPart,
)
from gonogo.finding import Report, Skipped, Text, Verdict
from gonogo.finding.call import Invocation
from gonogo.finding.remedy import GapRemedy, Purpose, Reason, prepare_launch, rehearse_again, run_command
from gonogo.prepare.inferred.producers import reason_with_producer
from gonogo.prepare.make import generate_files
from gonogo.prepare.prepare import parse_prepare_options
from gonogo.prepare.required_inputs import RequiredInput
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.baseline import compare_files, read_baseline
from gonogo.rehearse.limits import absent, certificate, synthetic_data_failures
from gonogo.rehearse.limits.world import ProjectWorld
from gonogo.report import render
from gonogo.report.answer.command_placeholders import with_invocation
from gonogo.report.answer.next_step import PURPOSE_TEXTS, NextStep, next_step
from gonogo.virtual.weights.model_folders import model_not_cached

CALL = Invocation(
    ("bash", "launch.sh"),
    ("--gpus", "8xH100-80G", "--environment", "old.txt", "--env", "HOME_OF_DATA"),
    own_options=(("--ranks", "0,1"), ("--timeout", "60")),
)
REHEARSE = "gonogo rehearse --gpus 8xH100-80G --environment old.txt --env HOME_OF_DATA"
OWN = "--ranks 0,1 --timeout 60"
LAUNCH = "-- bash launch.sh"


def report_on(*gaps: Skipped) -> Report:
    return with_invocation(Report("rehearse", Verdict.CANNOT_TELL, skipped=gaps), CALL)


def gap(remedy: GapRemedy | None) -> Skipped:
    return Skipped(Text("rank 0", "rank 0"), Text("it lacks", "缺少"), remedy)


@pytest.mark.parametrize(
    ("remedy", "command", "what"),
    [
        (
            rehearse_again("--env", "TOKEN=VALUE", purpose=Purpose.PASS_VARIABLE),
            f"{REHEARSE} {OWN} --env TOKEN=VALUE {LAUNCH}",
            "passes the variable on",
        ),
        (  # of an option that is given once, the new value
            rehearse_again("--environment", "requirements.txt", purpose=Purpose.BUILD_ENVIRONMENT),
            f"gonogo rehearse --gpus 8xH100-80G --env HOME_OF_DATA {OWN} --environment requirements.txt {LAUNCH}",
            "creates that environment, and rehearses in it",
        ),
        (
            rehearse_again("--ranks", "all", purpose=Purpose.ALL_RANKS),
            f"{REHEARSE} --timeout 60 --ranks all {LAUNCH}",
            "rehearses all ranks",
        ),
        (
            rehearse_again(purpose=Purpose.AFTER_FILES, subject="data/rows.jsonl"),
            "",  # never the command that was just run
            "put data/rows.jsonl here, or a few rows of it, then rehearse again",
        ),
        (prepare_launch(), f"gonogo prepare {LAUNCH}", "generates what is missing here"),
        (
            prepare_launch("--rows", "1024", purpose=Purpose.GENERATE_ROWS),
            f"gonogo prepare --rows 1024 {LAUNCH}",
            "generates more rows; then rehearse again",
        ),
        (
            run_command("hf download {name}").format(name="org/model; rm -rf ~"),
            "hf download 'org/model; rm -rf ~'",
            "downloads what the program asks for; then rehearse again",
        ),
        (None, f"{REHEARSE} {OWN} --keep rehearsal-records {LAUNCH}", "keeps what each rank printed"),
    ],
)
def test_each_kind_of_remedy_is_the_next_command(remedy: GapRemedy | None, command: str, what: str) -> None:
    step = next_step(
        report_on(gap(None), gap(remedy), gap(prepare_launch("--rows", "9"))) if remedy else report_on(gap(None))
    )
    assert (step.command, step.what.en) == (command, what)
    assert step.what.zh != what


def test_a_remedy_without_the_launch_command_is_left_out() -> None:
    report = msgspec.structs.replace(report_on(gap(prepare_launch()), gap(run_command("hf download a/b"))), call=None)
    assert next_step(report).command == "hf download a/b"


def test_a_sentence_that_names_a_command_decides_nothing() -> None:
    why = Text("run gonogo prepare -- bash other.sh, add --env X, or curl -L -o a https://b", "同上")
    assert "--keep" in next_step(report_on(Skipped(why, why))).command


def test_records_that_are_kept_are_read_and_not_kept_once_more() -> None:
    call = msgspec.structs.replace(CALL, own_options=(*CALL.own_options, ("--keep", "out")))
    step = next_step(msgspec.structs.replace(report_on(gap(None)), call=call))
    assert (step.command, step.what.en) == ("", "what each rank printed is in out")


def test_each_purpose_has_its_words() -> None:
    assert set(PURPOSE_TEXTS) == set(Purpose)
    for text in PURPOSE_TEXTS.values():
        assert text.en != text.zh


# Each reason that the source states, as a rank's record has it, reaches the report's third line.


def stated_reasons() -> Iterator[tuple[str, Reason]]:
    for package in ("prepare", "rehearse", "virtual"):
        folder = f"{Path(gonogo.__file__).parent}/{package}"
        for found in pkgutil.walk_packages([folder], f"gonogo.{package}."):
            if "stand_ins" in found.name or found.name.endswith("__main__"):
                continue
            path = Path(folder, *found.name.split(".")[2:])
            source = path / "__init__.py" if found.ispkg else path.with_suffix(".py")
            if "Reason(" not in source.read_text(encoding="utf-8"):
                continue
            for name, value in vars(importlib.import_module(found.name)).items():
                if isinstance(value, Reason):
                    yield f"{found.name}.{name}", value


REASONS = dict(stated_reasons())
WITHOUT_REMEDY = {
    "_FACADE_INCOMPLETE", "_META_TENSOR_USED", "_GONOGO_FAULT", "_REHEARSAL_FILE_FAULT", "_CUDA_DRIVER_CALLED",
    "_UNKNOWN_DEVICE",
}  # fmt: skip
"""Faults of gonogo's own: the records show what to report."""


def test_the_reasons_are_found() -> None:
    assert len(REASONS) > 40
    assert {name.rpartition(".")[2] for name, reason in REASONS.items() if reason.remedy is None} == WITHOUT_REMEDY


def fields_of(reason: Reason) -> set[str]:
    said = [reason.why.en, reason.why.zh]
    if reason.remedy is not None:
        said += [*reason.remedy.options, reason.remedy.command, reason.remedy.subject]
    return {name for text in said for _, name, _, _ in Formatter().parse(text) if name}


def next_of_rank(reason: Reason) -> NextStep:
    """The next command of a rehearsal in which a rank recorded that reason; the record is read from its JSON."""
    unsupported = UnsupportedPart.of("KeyError: 'a'", "/work/train.py:3", reason)
    record = samples.rehearsal_record(samples.rank_record(outcome="unsupported", unsupported=[unsupported]))
    read = msgspec.json.decode(msgspec.json.encode(record), type=RehearsalRecord)
    report = rehearsal_report(read, "/work")
    assert report.verdict is Verdict.CANNOT_TELL
    return next_step(with_invocation(report, CALL))


@pytest.mark.parametrize("name", REASONS)
def test_each_reason_has_its_remedy_as_the_next_command(name: str) -> None:
    reason = REASONS[name]
    step = next_of_rank(reason.format(**dict.fromkeys(fields_of(reason), "VALUE-HERE")))
    assert "{" not in f"{step.command} {step.what.en} {step.what.zh}"
    assert "COMMAND" not in step.command
    kept = "--keep" in step.command
    assert kept is (reason.remedy is None)
    if reason.remedy is not None:
        assert step.purpose is reason.remedy.purpose
        assert all(option.format(**dict.fromkeys(fields_of(reason), "VALUE-HERE")) in step.command.replace("'", "")
                   for option in reason.remedy.options)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "command", "purpose"),
    [
        ({"outcome": "timed-out"}, f"{REHEARSE} --ranks 0,1 --timeout 3600 {LAUNCH}", Purpose.EXTEND_TIMEOUT),
        ({"outcome": "interrupted"}, f"{REHEARSE} {OWN} {LAUNCH}", Purpose.REHEARSE),
        ({"outcome": "killed", "events": ["killed by SIGKILL"]}, f"{REHEARSE} --timeout 60 --ranks 0 {LAUNCH}",
         Purpose.ONE_RANK),
        ({"outcome": "killed", "events": ["exit status 7"]}, f"{REHEARSE} {OWN} --keep rehearsal-records {LAUNCH}",
         Purpose.KEEP_RECORDS),
        ({"empty_pass": True, "steps": 0, "phases": ["load"]}, f"gonogo prepare --rows 1024 {LAUNCH}",
         Purpose.GENERATE_ROWS),
    ],
)  # fmt: skip
def test_how_a_rank_ended_has_its_remedy(changes: dict[str, object], command: str, purpose: Purpose) -> None:
    record = samples.rehearsal_record(samples.rank_record(0), samples.rank_record(1, **{"phases": ["load"], **changes}))
    step = next_step(with_invocation(rehearsal_report(record, "/work"), CALL))
    assert (step.command, step.purpose) == (command, purpose)


def test_a_known_reason_comes_before_more_time() -> None:
    """A rank that timed out may have waited for the one that could not go on."""
    unsupported = [UnsupportedPart.of("KeyError: 'a'", "/work/train.py:3", Reason(Text("no", "否"), prepare_launch()))]
    ranks = (
        samples.rank_record(0, outcome="timed-out", phases=["load"]),
        samples.rank_record(1, outcome="unsupported", unsupported=unsupported),
    )
    report = with_invocation(rehearsal_report(samples.rehearsal_record(*ranks), "/work"), CALL)
    assert next_step(report).command == f"gonogo prepare {LAUNCH}"


def test_more_time_is_more_than_it_took() -> None:
    record = samples.rehearsal_record(samples.rank_record(outcome="timed-out", phases=["load"]))
    record.seconds = 7201.0
    assert "--timeout 18000" in next_step(with_invocation(rehearsal_report(record, "/work"), CALL)).command


# Remedies that depend on what is known.


def world_with(folder: Path, **known: object) -> ProjectWorld:
    return ProjectWorld(folder, folder, prepared=msgspec.convert(known, PreparedStandIns))


@pytest.mark.parametrize(
    ("operands", "known", "remedy"),
    [
        (["LlamaTokenizerFast"], {"models": {"org/net": "models/net"}, "spelled": {"org/net": "Org/Net"}},
         synthetic_data_failures.WITHOUT_WEIGHTS.format(name="Org/Net")),
        (["LlamaTokenizerFast"], {"models": {"a/b": "x", "c/d": "y"}}, None),
        (["flash_attn.layers.Rotary"], {}, rehearse_again(purpose=Purpose.AFTER_INSTALL, subject="flash_attn")),
        (["Dataset"], {"datasets": {"org/rows": "x"}, "spelled": {"org/rows": "Org/Rows"}},
         run_command("hf download --repo-type dataset Org/Rows")),
        (["Dataset"], {"datasets": {"org/rows": "x", "org/more": "y"}},
         rehearse_again(purpose=Purpose.AFTER_FILES, subject="org/rows, org/more")),
        (["Dataset"], {}, rehearse_again(purpose=Purpose.AFTER_DATA)),
    ],
)  # fmt: skip
def test_a_generated_object_has_the_real_one_as_its_remedy(
    tmp_path: Path, operands: list[str], known: dict[str, object], remedy: GapRemedy | None
) -> None:
    rank = samples.rank_record(outcome="raised", made_operands=operands)
    assert certificate._generated_objects_reason(rank, world_with(tmp_path, **known)).remedy == remedy


def test_the_table_knows_how_a_name_is_spelled(tmp_path: Path) -> None:
    wanted = [RequiredInput("model", "Qwen/Qwen2.5-7B", state="can-be-made")]
    _, table = generate_files(wanted, tmp_path, 64, parse_prepare_options(8, None, []))
    assert table.spelled == {"qwen/qwen2.5-7b": "Qwen/Qwen2.5-7B"}


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        (MissingInput("model", "Org/Net"), run_command("hf download Org/Net")),
        (MissingInput("data", "Org/Rows"), run_command("hf download --repo-type dataset Org/Rows")),
        (
            MissingInput("data", "./rows", files=("a.json",)),
            rehearse_again(purpose=Purpose.AFTER_FILES, subject="./rows"),
        ),
    ],
)
def test_what_prepare_could_not_generate_is_fetched(missing: MissingInput, remedy: GapRemedy) -> None:
    assert synthetic_data_failures._fetch_remedy(missing) == remedy


def test_a_model_that_no_table_has_is_downloaded_and_a_published_one_generated() -> None:
    assert model_not_cached("Qwen/Qwen2.5-7B").remedy == prepare_launch()
    remedy = model_not_cached("nobody/their-net").remedy
    assert remedy is not None
    assert remedy.command in model_not_cached("nobody/their-net").why.en
    assert remedy.command.startswith("hf download nobody/their-net --include '*.json' --include")


def test_a_file_that_a_script_writes_is_written_first(tmp_path: Path) -> None:
    (tmp_path / "tokenize_rows.py").write_text("import numpy\n\n\nnumpy.save('out/tokens.npy', [1])\n")
    reason = Reason(Text("it is not here", "不在"), prepare_launch())
    found = reason_with_producer(reason, "out/tokens.npy", tmp_path)
    assert found.remedy == rehearse_again(purpose=Purpose.AFTER_STEP, subject="tokenize_rows.py:4")
    assert next_of_rank(found).what.en == (
        "first run the step that writes it (tokenize_rows.py:4), then rehearse again"
    )
    assert reason_with_producer(reason, "out/others.npy", tmp_path) == reason


def test_a_download_that_the_program_makes_is_the_next_command() -> None:
    place = Frame("/work/train.py", 3, "main", "", "user")
    for into, made in (("val.jsonl", ""), ("cache/val.jsonl", "mkdir -p cache && ")):
        lookup = FailedLookup("address", "https://example.org/val.jsonl", place, into=into)
        reason = absent._describe_lookup(lookup, is_prepared=True)
        command = f"{made}curl -L -o {into} https://example.org/val.jsonl"
        assert f"({command})" in reason.why.en
        assert next_of_rank(reason).command == command


@pytest.mark.parametrize(("kind", "purpose"), [("file", Purpose.AFTER_FILES), ("address", Purpose.AFTER_CHANGE)])
def test_what_was_prepared_in_the_same_call_is_not_prepared_again(
    tmp_path: Path, kind: Literal["file", "address"], purpose: Purpose
) -> None:
    lookup = FailedLookup(kind, "data/rows.bin", Frame("/work/train.py", 3, "main", "", "user"))
    before = absent._describe_lookup(lookup, is_prepared=False)
    assert before.remedy == prepare_launch()
    with prepared_parent_override(tmp_path):
        after = absent._describe_lookup(lookup, is_prepared=False)
    assert after.why == before.why
    assert after.remedy is not None
    assert after.remedy.purpose is purpose


@pytest.mark.parametrize("automatically", [False, True])
def test_a_file_that_a_message_names_is_put_there_if_none_is_generated(tmp_path: Path, automatically: bool) -> None:
    place = Frame(str(tmp_path / "train.py"), 3, "main", "", "user")
    message = "[Errno 2] No such file or directory: 'data/rows.bin'"
    rank = samples.rank_record(outcome="raised", phases=["load"])
    rank.failure = Failure("FileNotFoundError", message, (place,), "load", 0)
    record = samples.rehearsal_record(rank)
    table = PreparedStandIns(environment=synthetic_data_failures.NO_ENVIRONMENT)
    with prepared_parent_override(tmp_path) if automatically else contextlib.nullcontext():
        found = synthetic_data_failures.explain_data_failure(rank, table, record, tmp_path)
    assert found is not None
    put = rehearse_again(purpose=Purpose.AFTER_FILES, subject="data/rows.bin")
    assert found[1].remedy == (put if automatically else prepare_launch())


def test_a_failure_leads_to_the_next_command(tmp_path: Path) -> None:
    """From the program that fails to the third line, without any of the tests' own texts."""
    World("file", "got = 1", "at the top", "at once").write(tmp_path)
    (tmp_path / "train.py").write_text("raise ValueError('batch of 12 for 8 ranks')\n")
    record = rehearsed_lacking(tmp_path, {})
    assert record is not None
    assumed = Reason(Text("assuming 8", "假定 8 个"), rehearse_again("--gpus", "4xH100", purpose=Purpose.COUNT_OF_NODE))
    certificate.apply_limits(record, ProjectWorld(tmp_path, tmp_path, gpus_assumed=assumed))
    command = next_step(with_invocation(rehearsal_report(record, str(tmp_path)), CALL)).command
    assert command == f"gonogo rehearse --environment old.txt --env HOME_OF_DATA {OWN} --gpus 4xH100 {LAUNCH}"


# Recorded, and read again.


def written(report: Report, path: Path, language: str = "en") -> dict[str, object]:
    path.write_text(render(report, "json", language), encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def test_the_json_has_the_remedy_and_the_purpose(tmp_path: Path) -> None:
    remedy = rehearse_again(purpose=Purpose.AFTER_FILES, subject="rows.jsonl")
    said = written(report_on(gap(None), gap(remedy)), tmp_path / "now.json")
    jsonschema.validate(said, report_schema())
    assert said["skipped"] == [
        {"what": "rank 0", "why": "it lacks"},
        {"what": "rank 0", "why": "it lacks",
         "remedy": {"kind": "rehearse", "purpose": "after-files", "subject": "rows.jsonl"}},
    ]  # fmt: skip
    answer = said["answer"]
    assert isinstance(answer, dict)
    assert (answer["next_purpose"], answer["next_details"]) == ("after-files", {"subject": "rows.jsonl"})


@pytest.mark.parametrize(
    ("purpose", "in_chinese"), [("after-files", True), (None, False), ("of-a-newer-gonogo", False)]
)
def test_a_comparison_says_what_the_later_report_suggests(
    tmp_path: Path, purpose: str | None, in_chinese: bool
) -> None:
    """In the language of the reader, if the report states the purpose; an older one is shown as it is written."""
    remedy = rehearse_again(purpose=Purpose.AFTER_FILES, subject="rows.jsonl")
    said = written(report_on(gap(remedy)), tmp_path / "now.json")
    answer = said["answer"]
    assert isinstance(answer, dict)
    if purpose is None:
        del answer["next_purpose"], answer["next_details"], said["skipped"][0]["remedy"]  # type: ignore[index]
        jsonschema.validate(said, report_schema())
    else:
        answer["next_purpose"] = purpose
    (tmp_path / "now.json").write_text(json.dumps(said), encoding="utf-8")
    step = next_step(compare_files(tmp_path / "now.json", tmp_path / "now.json", 2.0))
    assert step.command == ""
    assert step.what.en == "put rows.jsonl here, or a few rows of it, then rehearse again"
    assert (step.what.zh == "先放好 rows.jsonl 或其中几行，再排练一次") is in_chinese


@pytest.mark.parametrize("details", [{}, {"command": "rm"}, {"self": "x", "subject": "y"}, {"subject": "{0}"}])
def test_details_that_no_gonogo_wrote_are_no_error(tmp_path: Path, details: dict[str, str]) -> None:
    said = written(report_on(gap(rehearse_again(purpose=Purpose.AFTER_COPY, subject="a"))), tmp_path / "now.json")
    said["answer"]["next_details"] = details  # type: ignore[index]
    (tmp_path / "now.json").write_text(json.dumps(said), encoding="utf-8")
    step = next_step(compare_files(tmp_path / "now.json", tmp_path / "now.json", 2.0))
    assert step.what.en == (f"put {'{0}' if details.get('subject') == '{0}' else 'a'} here, then rehearse again")


def test_a_report_without_an_answer_is_read(tmp_path: Path) -> None:
    said = written(report_on(gap(None)), tmp_path / "now.json")
    del said["answer"]
    (tmp_path / "now.json").write_text(json.dumps(said), encoding="utf-8")
    assert read_baseline(tmp_path / "now.json").answer.next == ""
    assert next_step(compare_files(tmp_path / "now.json", tmp_path / "now.json", 2.0)).purpose is Purpose.NOTHING_LEFT


def test_a_record_of_an_older_gonogo_has_no_remedy() -> None:
    old = b'{"what":"x","where":"a.py:1","why":"w","why_zh":"","environment":"requirements.txt"}'
    assert msgspec.json.decode(old, type=UnsupportedPart).remedy is None
    assert isinstance(samples.rank_record(), RankRecord)


@pytest.mark.parametrize(
    ("command", "step"),
    [
        (("sbatch", "-N2", "job.sh"), "sbatch -N2 job.sh"),
        (("srun", "python", "t.py"), "gonogo run -- srun python t.py"),
    ],
)
def test_a_job_is_submitted_and_other_commands_are_guarded(command: tuple[str, ...], step: str) -> None:
    """``sbatch`` ends before its job begins: there is nothing to guard."""
    call = msgspec.structs.replace(CALL, command=command)
    assert next_step(with_invocation(Report("rehearse", Verdict.GO), call)).command == step
