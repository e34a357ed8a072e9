"""``gonogo plan --task``: what is asked, what is tried, and how an engine's memory and time are reckoned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from plan_facts import ENGINES, SEVEN_BILLION, model_in, request
from plan_meter import FakeMeter

from gonogo.finding import UserError, Verdict
from gonogo.trials.plan.answer import plan_report
from gonogo.trials.plan.answer_solved import solved_report
from gonogo.trials.plan.candidates import Candidates
from gonogo.trials.plan.choice import estimate_by_formula
from gonogo.trials.plan.closed_form import NO_CALIBRATION
from gonogo.trials.plan.reasons import shortfall
from gonogo.trials.plan.request import PlanOptions, PlanRequest, build_plan_request
from gonogo.trials.plan.search import search
from gonogo.trials.plan.sizing import engine_layouts
from gonogo.trials.plan.sizing.batches import global_batch, measured_accumulation, measured_generations
from gonogo.trials.plan.sizing.engine import generation_seconds
from gonogo.trials.plan.solve import Unknown, solve
from gonogo.trials.plan.strategy import Family, Strategy
from gonogo.trials.plan.task.rollout import RolloutChoice, engine_memory, memory_shares, with_engine
from gonogo.trials.plan.task.settings import TaskOptions, TaskSettings
from gonogo.virtual.measuring.jobs import ModelFacts, PhasePeak
from gonogo.virtual.measuring.post_training import make_word_tokenizer, sample_vocabulary_size, synthetic_rows

GIB = 1 << 30
FACTS = replace(SEVEN_BILLION, engine=ENGINES)


def asked(tmp_path: Path, gpus: str = "8xH100-80G", **given: Any) -> PlanRequest:
    """The request that the command line makes."""
    plain = {name: given.pop(name) for name in ("seq_len", "tune", "global_batch") if name in given}
    options = PlanOptions(model=str(model_in(tmp_path / "model")), gpus=gpus, task=TaskOptions(**given), **plain)
    return build_plan_request(options, None)[0]


class Meter(FakeMeter):
    """Of a model whose engine's figures are known."""

    def facts(self) -> ModelFacts:
        return FACTS


@pytest.mark.parametrize(
    ("given", "lengths"),
    [
        ({"task": "grpo"}, (512, 1024)),
        ({"task": "dpo"}, (512, 3584)),
        ({"task": "grpo", "completion_len": 2048}, (512, 2048)),
        ({"task": "grpo", "prompt_len": 100, "seq_len": 1100}, (100, 1000)),
        ({"task": "dpo", "seq_len": 600}, (300, 300)),
        ({"task": "kto", "seq_len": 4096, "completion_len": 1096}, (3000, 1096)),
    ],
)
def test_lengths_of_prompt_and_completion(tmp_path: Path, given: dict[str, Any], lengths: tuple[int, int]) -> None:
    found = asked(tmp_path, **given)
    assert found.task is not None
    assert (found.task.prompt_len, found.task.completion_len) == lengths
    assert found.seq_len == sum(lengths)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"task": "ppo"}, "--task ppo: must be one of sft, dpo, kto, rm, grpo, rloo, gkd"),
        ({"task": "dpo", "generations": 4}, "--generations does not apply to --task dpo, only to grpo, rloo"),
        ({"prompt_len": 5}, "--prompt-len does not apply to --task sft"),
        ({"task": "rm", "beta": 0.1}, "--beta does not apply to --task rm, only to dpo, kto, grpo, rloo"),
        ({"task": "gkd"}, "--task gkd distils from a teacher"),
        ({"task": "grpo", "generations": 1}, "at least 2"),
        ({"task": "grpo", "engine": "sideways"}, "--engine sideways: must be one of colocate, server, none"),
        ({"task": "grpo", "tune": "qlora"}, "--tune qlora with --task grpo: only full, lora"),
        ({"task": "dpo", "seq_len": 100, "prompt_len": 100}, "--seq-len 100 must"),
        ({"task": "dpo", "seq_len": 100, "completion_len": 200}, "one of them alone is already that long"),
        (
            {"task": "dpo", "seq_len": 100, "prompt_len": 50, "completion_len": 60},
            "must be the sum of prompt and completion, which are 50 and 60",
        ),
        ({"task": "grpo", "gpus": "1xH100-80G", "engine": "server"}, "with one GPU none is left"),
        ({"task": "grpo", "gpus": "8xV100-32G"}, "vLLM's memory use there is not known"),
        ({"task": "grpo", "reward_model": "nowhere"}, "nowhere: no such folder"),
    ],
)
def test_what_cannot_be_planned_is_said_in_a_line(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as raised:
        asked(tmp_path, **given)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_reference_is_held_computed_before_or_the_model_without_adapters(tmp_path: Path) -> None:
    def references(**given: Any) -> tuple[str, ...]:
        found = asked(tmp_path, **given)
        assert found.task is not None
        return found.task.references(found.tune)

    assert references(task="dpo") == ("model", "precomputed")
    assert references(task="dpo", tune="lora") == ("adapter",)
    assert references(task="grpo") == ("",)
    assert references(task="grpo", beta=0.04) == ("model",)
    assert references(task="rloo") == ("model",)
    assert references(task="rm") == ("",)


def test_a_step_holds_all_completions_of_each_prompt(tmp_path: Path) -> None:
    grpo = asked(tmp_path, task="grpo", generations=6)
    assert global_batch(grpo) == 72
    assert global_batch(grpo.without_server_gpus(1)) == 84
    one = asked(tmp_path, "1xH100-80G", task="grpo")
    assert measured_accumulation(one, Strategy(Family(0), False, 1, 1)) == 2
    assert measured_accumulation(grpo, Strategy(Family(3), False, 2, 4)) == 2
    rewarded = asked(tmp_path, task="grpo", reward_model=str(tmp_path / "model"))
    assert measured_accumulation(rewarded, Strategy(Family(3), False, 2, 4)) == 4
    assert measured_accumulation(grpo, Strategy(Family(3), False, 2, 4, rollout=RolloutChoice("none"))) == 4
    assert [measured_generations(samples) for samples in (2, 7, 9, 32)] == [2, 7, 3, 2]


def test_what_an_engine_takes_in_each_phase() -> None:
    rollout = RolloutChoice("colocate", tp=1, share=0.5, sleep=True)
    engine = engine_memory(ENGINES[0], rollout, 64, 80 * GIB)
    awake = engine.weights + engine.cache + engine.graphs
    assert awake + engine.profiled == pytest.approx(40 * GIB, rel=1e-3)
    assert engine.bytes_in_phase("load") == 0
    assert engine.bytes_in_phase("generate") == awake
    assert engine.bytes_in_phase("sync") == engine.weights + engine.graphs
    assert engine.bytes_in_phase("backward") == engine.graphs
    assert engine_memory(ENGINES[0], replace(rollout, sleep=False), 64, 80 * GIB).bytes_in_phase("backward") == awake


def test_it_starts_only_where_share_and_cache_are_surely_there() -> None:
    engine = engine_memory(ENGINES[0], RolloutChoice("colocate", share=0.3), 64, 80 * GIB)
    sequence = 1536 * ENGINES[0].cache_of_token
    assert engine.margin(sequence, 10 * GIB, 80 * GIB, 2 * GIB) > 0
    assert engine.margin(sequence, 54 * GIB, 80 * GIB, 2 * GIB) < 0
    small = engine_memory(ENGINES[0], RolloutChoice("colocate", share=0.19), 64, 80 * GIB)
    assert small.margin(sequence, 0, 80 * GIB, 2 * GIB) < 0
    assert min(memory_shares(ENGINES[0], 64, 1536, 80 * GIB)) == 0.2


def test_a_trainer_is_put_beside_another_engine_than_it_was_rehearsed_with() -> None:
    measured = peak_of({"forward": (20.0, 5.0), "generate": (12.0, 5.0)}, reserved=22.0)
    engine = engine_memory(ENGINES[0], RolloutChoice("colocate", share=0.5, sleep=True), 64, 80 * GIB)
    found = with_engine(measured, engine)
    assert found.phases["forward"].allocated == 15 * GIB + engine.graphs
    assert found.highest is found.phases["generate"]
    assert found.highest.by_category["rollout"] == engine.bytes_in_phase("generate")
    assert found.reserved - found.allocated == 2 * GIB


def peak_of(phases: dict[str, tuple[float, float]], reserved: float) -> Any:
    """Phases by GiB in all, and of it the engine's."""
    from gonogo.trials.plan.extrapolation import NOTHING, Peak

    held = {
        name: PhasePeak(all_ * GIB, {"rollout": engine * GIB, "parameters": (all_ - engine) * GIB})
        for name, (all_, engine) in phases.items()
    }
    return Peak(held, reserved * GIB, GIB, 0.0, NOTHING, NOTHING, NOTHING)


def test_generating_reads_weights_and_cache_for_each_token(tmp_path: Path) -> None:
    speed = asked(tmp_path, task="grpo").machine.accelerator.speed
    assert speed is not None

    def seconds(cache: float, completions: int = 64, tp: int = 0) -> float:
        return generation_seconds(
            FACTS,
            ENGINES[tp],
            speed,
            cache=cache,
            completions=completions,
            generations=8,
            prompt=512,
            completion_tokens=1024,
        )

    least = 1024 * ENGINES[0].weights / (speed.memory_bytes * 0.8)
    assert least < seconds(40 * GIB) < 2 * least
    assert seconds(2 * GIB) > 2 * seconds(40 * GIB)  # the sequences wait for one another
    assert seconds(40 * GIB, tp=1) < seconds(40 * GIB)  # two GPUs read half of the weights each
    assert seconds(40 * GIB, completions=128) > seconds(40 * GIB)


def test_engines_beside_the_trainer_and_on_gpus_of_their_own(tmp_path: Path) -> None:
    candidates = Candidates(asked(tmp_path, task="grpo"), FACTS, Meter())  # type: ignore[arg-type]
    groups = candidates.groups()
    assert {(group.engine, group.gpus) for group in groups} == {
        ("colocate", 0), ("server", 1), ("server", 2), ("server", 4)
    }  # fmt: skip
    server = next(group for group in groups if group.gpus == 2)
    assert candidates.trainer_request(2).world_size == 6
    assert {choice.strategy.rollout.tp for choice in candidates.choices(server)} == {1, 2}
    colocated = next(group for group in groups if group.engine == "colocate" and group.family == Family(3))
    found = candidates.choices(colocated)
    assert {choice.strategy.rollout.sleep for choice in found} == {False, True}
    assert {choice.strategy.rollout.tp for choice in found} == {1, 2, 4}
    best = candidates.best(colocated)
    assert best is not None
    assert best.time.generation > 0
    assert best.by_category["rollout"] > 0


def test_on_several_nodes_a_server_has_a_node(tmp_path: Path) -> None:
    wide = asked(tmp_path, task="grpo")
    wide = replace(wide, machine=replace(wide.machine, nodes=2))
    candidates = Candidates(wide, FACTS, Meter())  # type: ignore[arg-type]
    assert {group.gpus for group in candidates.groups()} == {0, 8}
    assert candidates.trainer_request(8).machine.nodes == 1


def test_kto_takes_no_micro_batch_of_one(tmp_path: Path) -> None:
    candidates = Candidates(asked(tmp_path, task="kto"), FACTS, Meter())  # type: ignore[arg-type]
    assert candidates.micro_batches(candidates.groups()[0]) == (2, 4, 8)


def test_a_preference_trains_two_sequences(tmp_path: Path) -> None:
    dpo, kto = asked(tmp_path, task="dpo", seq_len=1536), asked(tmp_path, task="kto", seq_len=1536)
    assert dpo.tokens_per_sample == 2 * kto.tokens_per_sample == 3072
    assert request(model_in(tmp_path / "plain")).tokens_per_sample == 4096


def test_settings_are_none_for_plain_fine_tuning(tmp_path: Path) -> None:
    assert asked(tmp_path).task is None
    assert asked(tmp_path, task="sft").task is None
    assert isinstance(asked(tmp_path, task="rm").task, TaskSettings)


def test_the_best_is_rehearsed_whole_with_its_engine_and_said_so(tmp_path: Path) -> None:
    meter = Meter()
    report = plan_report(search(asked(tmp_path, task="grpo"), meter, lambda _: None))  # type: ignore[arg-type]
    assert report.verdict is Verdict.GO
    assert report.plan is not None
    assert (report.plan.task, report.plan.generations) == ("grpo", 8)
    best = report.plan.fitting[0]
    assert best.rollout is not None
    assert best.rollout.engine in ("colocate", "server")
    assert best.rollout.seconds_of_step > 0
    assert meter.cells[-1].real
    assert {cell.strategy.rollout.share for cell in meter.cells if not cell.real} == {0.0}
    rows = {(one.zero_stage, one.offload_optimizer, one.offload_parameters, one.rollout and one.rollout.engine)
            for one in report.plan.fitting}  # fmt: skip
    assert len(rows) == len(report.plan.fitting)  # of each way to spread and generate, the best alone
    said = " ".join(text.en for text in best.why)
    assert "vLLM runs" in said
    assert "Generation takes an estimated" in said
    skipped = {one.what.en for one in report.skipped}
    assert {"generation speed", "ms-swift's launch", "the rollout server's GPUs"} <= skipped


@pytest.mark.parametrize("unknown", ["micro-batch", "seq-len", "gpus", "generations"])
def test_the_most_that_fits_beside_an_engine(unknown: Unknown, tmp_path: Path) -> None:
    found = solve(unknown, asked(tmp_path, task="grpo"), Meter(), lambda _: None)  # type: ignore[arg-type]
    report = solved_report(found)
    assert report.verdict is Verdict.GO
    best = found.solutions[0]
    assert best.choice.strategy.rollout.engine == "colocate"
    assert best.choice.strategy.rollout.sleep
    if unknown == "generations":
        of_gpu = best.choice.strategy.micro_batch * best.choice.strategy.accumulation
        assert of_gpu == best.value  # eight prompts on eight GPUs
        assert engine_layouts.smallest_engine_for_step(best.request, FACTS, of_gpu) is not None
        if not best.at_limit:
            assert (
                engine_layouts.smallest_engine_for_step(best.request, FACTS, of_gpu + 1) is None
                or best.choice.room.accelerator < 2 * GIB
            )


def test_where_the_engine_may_not_start_it_is_ruled_out_and_said(tmp_path: Path) -> None:
    one = asked(tmp_path, "1xA100-40G", task="grpo")
    strategy = Strategy(Family(2, "cpu"), True, 1, 64, rollout=RolloutChoice("colocate", share=0.7, sleep=True))
    choice = estimate_by_formula(one, FACTS, strategy, NO_CALIBRATION)
    assert not choice.room.fits
    assert choice.room.engine is not None
    assert choice.room.engine < 0
    assert not choice.may_fit(80 * GIB)
    roomy = replace(choice, room=replace(choice.room, accelerator=GIB))
    assert "starting reliably next to the trainer" in shortfall(roomy, one).en


@pytest.mark.parametrize("vocabulary", [3, 283, 502, 152_064])
def test_the_samples_have_no_token_that_the_model_lacks(vocabulary: int, tmp_path: Path) -> None:
    words = sample_vocabulary_size(vocabulary)
    made = make_word_tokenizer(str(tmp_path), words)
    row = next(synthetic_rows("dpo", 1, 700, 5, words))
    tokens = made(f"{row['prompt']} <end> <pad>")["input_ids"]
    assert len(tokens) == 702
    assert max(tokens) < vocabulary
