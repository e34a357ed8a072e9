"""What was run at the head of a report, which part costs what, and shares with bars: as a reader sees them."""

from __future__ import annotations

import io

import pytest
import samples
from msgspec.structs import replace

from gonogo.finding import Report
from gonogo.finding.as_run import AsRun, ConfiguredSettings, Recomputed
from gonogo.finding.rehearsal import ModuleMemory, Rehearsal
from gonogo.rehearse.answer import rehearsal_report
from gonogo.report import render
from gonogo.report.as_run import as_run_table
from gonogo.report.page import Page
from gonogo.report.rehearsal import largest_parts
from gonogo.report.text import print_report

GIB = samples.GIB
QLORA = AsRun(
    model="Qwen3ForCausalLM",
    adapter="PeftModelForCausalLM",
    parameters=8_234_377_216,
    trainable=43_646_976,
    quantized=6_945_767_424,
    weights=("uint8", "bfloat16"),
    weights_on=("cpu",),
    samples=(1, 2),
    tokens=(187, 512),
    accumulation=(4, 4),
    products="bfloat16",
    attention=("flash_attention_2", "sdpa"),
    recomputed=(Recomputed("Qwen3DecoderLayer", 36, 36),),
    strategy="DeepSpeed ZeRO-3",
    stage=3,
    optimizer="DeepSpeedCPUAdam",
    masters="float32",
    states_on=("cpu",),
    asked=ConfiguredSettings(micro_batch=4, accumulation=4),
)


def rehearsed(*runs: AsRun | None) -> Report:
    ranks = [samples.rank_record(number, as_run=run) for number, run in enumerate(runs)]
    return rehearsal_report(samples.rehearsal_record(*ranks, world_size=len(runs)), "/work")


def rehearsal_of(report: Report) -> Rehearsal:
    assert report.rehearsal is not None
    return report.rehearsal


def test_what_was_run_is_said_over_all_ranks() -> None:
    longer = replace(QLORA, tokens=(200, 1024), samples=(2, 2))
    table = as_run_table(rehearsal_of(rehearsed(QLORA, longer, None)), "en")
    assert dict(table.rows) == {
        "model": "Qwen3ForCausalLM (PeftModelForCausalLM), 8.23 B parameters, 43.6 M trainable, 6.95 B quantized",
        "batch": "3 ranks, micro-batch 1 to 2 (set to: 4), gradient accumulation 4",
        "tokens per sample": "187 to 1,024",
        "precision": "bf16 compute, uint8 and bf16 weights, fp32 optimizer",
        "strategy": "DeepSpeed ZeRO-3, optimizer states on cpu, weights on cpu",
        "gradient checkpointing": "on, 36/36 Qwen3DecoderLayer",
        "attention": "flash_attention_2, sdpa",
        "optimizer": "DeepSpeedCPUAdam",
        "versions": "torch 2.13.0",
    }
    chinese = dict(as_run_table(rehearsal_of(rehearsed(QLORA)), "zh").rows)
    assert chinese["batch"] == "1 个 rank，micro-batch 1 至 2（设置为 4），梯度累积 4"


def test_what_was_not_seen_has_no_row() -> None:
    assert as_run_table(rehearsal_of(rehearsed(None)), "en").rows == ()
    seen = dict(as_run_table(rehearsal_of(rehearsed(AsRun(model="Net", parameters=12, trainable=12))), "en").rows)
    assert seen == {
        "model": "Net, 12 parameters",
        "batch": "1 rank",
        "strategy": "none: each process has its own model",
        "versions": "torch 2.13.0",
    }


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_was_run_stands_behind_the_findings(language: str) -> None:
    report = replace(samples.report(), rehearsal=rehearsal_of(rehearsed(QLORA)))
    for format_name in ("text", "markdown"):
        written = render(report, format_name, language)
        head = "Training setup" if language == "en" else "训练设置"
        assert report.findings[0].hazard in written
        assert written.index(head) > written.index(report.findings[0].hazard)


def test_a_report_says_for_which_length_it_holds() -> None:
    report = rehearsed(QLORA)
    head, _, _ = render(report, "text", "en").partition("Training setup")
    assert "samples of 187 to 512 tokens" in head
    assert [text.what.en for text in report.skipped if "tokens" in text.what.en] == ["samples of more than 512 tokens"]
    assert not [text for text in rehearsed(None).skipped if "tokens" in text.what.en]


def test_tokens_of_a_sample_are_those_of_all_ranks_that_share_it() -> None:
    report = rehearsed(replace(QLORA, sequence_ranks=4))
    text = render(report, "text", "en")
    assert "samples of 748 to 2,048 tokens" in text
    assert "748 to 2,048, split over 4 ranks" in text
    assert [text.what.en for text in report.skipped if "tokens" in text.what.en] == [
        "samples of more than 2,048 tokens"
    ]


def test_phases_stand_in_the_order_of_a_run() -> None:
    rank = samples.rank_record(0, phases=["load", "save", "init", "forward", "backward", "step", "exit"])
    report = rehearsal_report(samples.rehearsal_record(rank), "/work")
    assert "load, init, forward, backward, optimizer step, save, exit" in report.covered[0].en


def module(path: str, count: int = 1, **held: int) -> ModuleMemory:
    return ModuleMemory(path, held, count)


MODULES = [
    module("model.layers.*.self_attn.q_proj", 32, parameters=4 * GIB, optimizer=16 * GIB),
    module("model.layers.*.mlp.up_proj", 32, parameters=8 * GIB, optimizer=32 * GIB),
    module("model.layers.*.mlp", 32, activations=6 * GIB),
    module("model.embed_tokens", parameters=GIB, optimizer=4 * GIB),
    module("lm_head", parameters=GIB, optimizer=4 * GIB),
    module("", temporary=3 * GIB),
]


@pytest.mark.parametrize("rows", [1, 3, 5, 8, 100])
def test_parts_hold_what_the_modules_hold(rows: int) -> None:
    parts = largest_parts(MODULES, rows)
    assert sum(part.bytes for part in parts) == sum(each.bytes for each in MODULES)
    assert len(parts) <= max(rows, 4)  # the model, its head, what is outside: without them there is no division
    assert [part.bytes for part in parts] == sorted((part.bytes for part in parts), reverse=True)
    assert all(part.count == 32 for part in parts if part.module.startswith("model.layers"))


def test_the_largest_part_is_divided_first() -> None:
    assert [part.module for part in largest_parts(MODULES, 4)] == [
        "model.layers.*",
        "lm_head",
        "model.embed_tokens",
        "",
    ]
    assert [part.module for part in largest_parts(MODULES, 6)][:3] == [
        "model.layers.*.mlp.up_proj",
        "model.layers.*.self_attn.q_proj",
        "model.layers.*.mlp",  # its own: what it has of its parts stands with them
    ]


def parts_report(encoding: str) -> str:
    report = rehearsed(QLORA)
    rank = rehearsal_of(report).ranks[0]
    rank = replace(rank, devices=(replace(rank.devices[0], modules=tuple(MODULES)),))
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace", write_through=True)
    print_report(replace(report, rehearsal=replace(rehearsal_of(report), ranks=(rank,))), Page(buffer, width=120), "en")
    buffer.seek(0)
    return buffer.read()


def test_a_share_has_a_bar_of_what_the_terminal_can_print() -> None:
    lines = parts_report("utf-8").splitlines()
    memory = next(line for line in lines if line.startswith("0  "))
    assert "███░░░░░░░  28 %  58.0 GiB" in memory  # 21 GiB reserved and 1 GiB of context, of 80 GiB
    assert "###.......  28 %" in parts_report("ascii")
    assert any(line.startswith("(outside any module)") and line.endswith("█░░░░░░░░░   4 %") for line in lines), lines


def test_markdown_and_json_have_percents_and_no_bars() -> None:
    report = rehearsed(QLORA)
    markdown = render(report, "markdown", "en")
    assert "| 28 % | 58.0 GiB |" in markdown
    assert "█" not in markdown
    assert '"percent": 27.5,' in render(report, "json", "en")


def test_what_does_not_fit_has_a_full_bar_and_lacks_memory() -> None:
    rank = samples.rank_record(0, devices=[samples.device_memory(allocated=100 * GIB)])
    text = render(rehearsal_report(samples.rehearsal_record(rank), "/work"), "text", "en")
    assert "██████████ 128 %  -22.0 GiB" in text


def test_assumptions_are_said_in_both_languages() -> None:
    report = rehearsed(QLORA)
    rank = rehearsal_of(report).ranks[0]
    assumed = (replace(rank.assumptions[0], what="values are finite", what_zh="值都是有限的"), rank.assumptions[1])
    report = replace(report, rehearsal=replace(rehearsal_of(report), ranks=(replace(rank, assumptions=assumed),)))
    english, chinese = (render(report, "text", language) for language in ("en", "zh"))
    assert "values are finite" in english
    assert "值都是有限的" in chinese
    assert "values are finite" not in chinese
    assert "assumption 2" in chinese  # of an older record
