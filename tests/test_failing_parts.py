"""What a failing piece of code is for: by its frames and its message, with the setting that turns it on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_log_answer import clues, frames, report_on, sentence

from gonogo.diagnose.explanations.topics import Topic, describe_failing_part, failing_parts, load_topics, suggest_change
from gonogo.evidence.failure.settings import LAUNCH, RunSetting
from gonogo.finding.failure import CodePlace, Message, RaisedException

PACKED = CodePlace("/opt/nemo-rl/nemo_rl/data.py", 3, "_unpack_sequences", "out[i] = packed[a:b]", "clone", "nemo-rl")
PLAIN = CodePlace("/site-packages/some/core.py", 3, "run", "return run(x)", "package", "some")


def raised(text: str, *frames: CodePlace) -> RaisedException:
    return RaisedException("RuntimeError", Message(text), frames, "run.log", 1)


def setting(name: str, value: str) -> RunSetting:
    return RunSetting(name, value, LAUNCH, None)


@pytest.mark.parametrize("topic", load_topics(), ids=lambda topic: topic.name.en)
def test_a_topic_has_both_languages_and_patterns_that_compile(topic: Topic) -> None:
    for text in (topic.name, topic.usual, topic.off):
        assert text.en
        assert re.search(r"[\u4e00-\u9fff]", text.zh)
    for pattern in (topic.code, topic.settings, topic.says):
        re.compile(pattern)
    assert not re.search(topic.code, "site-packages/torch/nn/modules/module.py _call_impl return forward_call(*args)")


def test_the_failing_function_shows_the_part_and_the_launch_the_setting() -> None:
    settings = [setting("actor.tp_size", "2"), setting("policy.sequence_packing.enabled", "True")]
    exception = raised("odd", PLAIN, PACKED)
    part = failing_parts(exception, settings)[0]
    assert part.topic.name.en.startswith("packed sequences")
    assert "policy.sequence_packing.enabled=True in the launch" in describe_failing_part(part).en
    assert "later release of nemo-rl" in suggest_change(part, exception).en


@pytest.mark.parametrize("value", ["False", "0", "none"])
def test_a_setting_that_is_off_turns_nothing_on(value: str) -> None:
    parts = failing_parts(raised("odd", PLAIN, PACKED), [setting("packing", value)])
    assert parts[0].setting is None


def test_a_parallelism_of_size_one_is_off() -> None:
    frame = CodePlace("/opt/x/loss.py", 3, "context_parallel_gather", "gather(x)", "clone", "x")
    on, off = (failing_parts(raised("odd", frame), [setting("context_parallel_size", size)])[0] for size in ("2", "1"))
    assert on.setting is not None
    assert off.setting is None


def test_code_that_is_for_nothing_in_particular_has_no_part() -> None:
    assert not failing_parts(raised("odd", PLAIN), [setting("packing", "True")])


def test_a_far_frame_alone_is_not_enough() -> None:
    assert not failing_parts(raised("odd", PACKED, *[PLAIN] * 6), [])


def test_an_exception_that_rules_explain_in_full_is_not_told_of_its_part(tmp_path: Path) -> None:
    code, launch = "return rollout", "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=hf"
    log = frames("/opt/verl/verl/workers/megatron_workers.py", code, "_build_rollout")
    explained = "UnboundLocalError: cannot access local variable 'rollout' where it is not associated with a value\n"
    assert "The failing code is for" not in clues(report_on(tmp_path, log + explained, launch))
    assert "The failing code is for" in clues(report_on(tmp_path, f"{log}RuntimeError: odd\n", launch))


def test_a_possible_cause_that_nothing_links_to_the_exception_stands_below_what_was_raised(tmp_path: Path) -> None:
    log = frames("/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "w.start()", "__init__")
    log += "AttributeError: Can't pickle local object 'GRPOTrainer.__init__.<locals>.data_collator'\n"
    report = report_on(tmp_path, log, "accelerate launch grpo.py --dataloader_num_workers 1")
    assert [one.hazard for one in report.findings] == ["program-raises", "spawned-process-cannot-pickle"]
    assert "Can't pickle local object" in sentence(report)


@pytest.mark.parametrize(("message", "told"), [("odd", True), ("num_workers must be equal to dp_size", False)])
def test_a_check_that_says_what_it_requires_is_not_told_of_the_part_around_it(
    tmp_path: Path, message: str, told: bool
) -> None:
    log = frames("/opt/verl/verl/workers/rollout/vllm_async_server.py", "raise ValueError(", "launch_server")
    launch = "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=vllm"
    assert ("The failing code is for" in clues(report_on(tmp_path, f"{log}ValueError: {message}\n", launch))) is told
