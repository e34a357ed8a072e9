"""What if: the run with another batch, length, strategy or GPU, as far as the rehearsals can tell.

The page's script computes the answer. Another micro-batch or length scales the activations and temporary tensors of a
training step, moment by moment; the band lies between the least and the most memory that can grow with them. Samples
of different lengths widen it, because it is unknown which of them a moment of the curve had. Another ZeRO stage or
offload is answered only from a rehearsal of it (``--also``).
"""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from gonogo.finding import Report, translated
from gonogo.finding.rehearsal import AlsoRehearsed, MemoryCurve, Rehearsal, RehearsedRank, downsample_timeline
from gonogo.finding.text import Text, load_texts
from gonogo.report.html.markup import element, escape_line, heading
from gonogo.report.untrusted import clean_line

_TITLE = translated("What if")
_SLIDER_LABELS = {
    "micro-batch": translated("samples per micro-batch"),
    "seq-len": translated("max tokens per sample"),
    "accumulation": translated("gradient accumulation"),
}
_CHOICE_LABELS = {
    "stage": translated("ZeRO stage"),
    "offload-optimizer": translated("optimizer states on"),
    "offload-parameters": translated("parameters on"),
    "gpu": translated("GPU"),
}
_REMARK = translated("Calculated from the rehearsal. Times per step are estimates, for comparison only.")
_COPY = translated("copy")
_CONFIRM_LABEL = translated("To confirm it by a rehearsal:")
_MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_LENGTH_FACTORS = (0.125, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16)
"""Multiples of the rehearsed length that can be chosen."""
_ACCUMULATION_STEPS = (1, 2, 4, 8, 16, 32, 64, 128)
_ZERO_STAGES = ("0", "1", "2", "3")
_DEVICES = ("none", "cpu", "nvme")
_OFFLOAD_DEVICES = {"cpu": "cpu", "nvme": "nvme"}
WORDS: dict[str, Text] = load_texts(__file__)


def what_if_data(report: Report) -> dict[str, Any] | None:
    """The data for the page's script; None if no step was rehearsed to its end."""
    found = _base_rank(report)
    if found is None:
        return None
    rehearsal, rank, curve = found
    run = rank.as_run
    assert run is not None
    base = _rehearsed_settings(rehearsal, rank)
    device = next(one for one in rank.devices if one.device == rank.device)
    node = rehearsal.host_per_node
    first = {
        **base,
        "min-tokens": run.tokens[0] if run.tokens else base["seq-len"],
        "allocated": device.peak_allocated_bytes,
        "reserved": device.peak_reserved_bytes,
        "host": node.peak_bytes if node is not None else 0,
        "seconds": rehearsal.seconds_of_step,
        "curve": _curve_data(curve),
    }
    also = () if rehearsal.also is msgspec.UNSET else rehearsal.also
    return {
        "base": base,
        "time": _time_data(rehearsal),
        "points": [first, *(point for one in also if (point := _variant_data(one, base)) is not None)],
        "gpus": [
            [clean_line(one.name), one.total_bytes, one.allowance_bytes, one.has_bfloat16] for one in rehearsal.gpus
        ],
        "own": [clean_line(rehearsal.accelerator), rehearsal.accelerator_bytes, device.allowance_bytes, True],
        "bfloat16": run.products == "bfloat16",
        "eager": "eager" in run.attention,
        "masks": "sdpa" in run.attention,
        "rollout": "rollout" in curve.held_mib or "generate" in rank.phases,
        "command": _command_template(report, rehearsal),
        "count": rehearsal.ranks_per_node,
    }


def what_if_section(report: Report, language: str) -> str:
    """The controls, each set to the rehearsed value; empty if there is no data to answer from."""
    found = what_if_data(report)
    if found is None:
        return ""
    base = found["base"]
    sizes = {
        "micro-batch": _with_own_value(base["micro-batch"], _MICRO_BATCHES),
        "seq-len": sorted({max(round(base["seq-len"] * times), 1) for times in _LENGTH_FACTORS}),
        "accumulation": _with_own_value(base["accumulation"], _ACCUMULATION_STEPS),
    }
    controls = [
        element(
            "label",
            element("span", escape_line(_SLIDER_LABELS[name].in_language(language))),
            element("output", escape_line(f"{base[name]:,}")),
            element("input", type="range", min="0", max=str(len(values) - 1), step="1",
                    value=str(values.index(base[name])), data_set=name, data_values=" ".join(map(str, values)),
                    aria_valuetext=f"{base[name]:,}"),
        )
        for name, values in sizes.items()
    ]  # fmt: skip
    choices: dict[str, list[tuple[str, str]]] = {}
    if base["stage"] is not None:
        choices["stage"] = [(stage, f"ZeRO-{stage}") for stage in _ZERO_STAGES]
        devices = [(name, WORDS[name].in_language(language)) for name in _DEVICES]
        choices |= {"offload-optimizer": devices, "offload-parameters": devices}
    own = found["own"][0]
    names = [name for name, *_ in found["gpus"]]
    choices["gpu"] = [(name, name) for name in ([] if own in names else [own]) + names]
    base = {**base, "gpu": own}
    for name, options in choices.items():
        listed = (
            element("option", escape_line(text), value=value, selected=value == str(base[name]))
            for value, text in options
        )
        label = element("span", escape_line(_CHOICE_LABELS[name].in_language(language)))
        controls.append(element("label", label, element("select", *listed, data_set=name)))
    answer = element(
        "div",
        element("p", element("strong", klass="judged"), " ", element("span", klass="used"), klass="sum"),
        element("meter", min="0", max="100", value="0", aria_hidden="true"),
        element("p", klass="how"),
        element("p", klass="remark besides"),
        klass="answered",
        aria_live="polite",
    )
    copy = element("button", escape_line(_COPY.in_language(language)), type="button", klass="copy")
    command = element(
        "div",
        element("p", element("strong", escape_line(_CONFIRM_LABEL.in_language(language)))),
        element("div", copy, element("pre", element("code", klass="asks"), tabindex="0"), klass="diff"),
        klass="sure",
    )
    return element(
        "section",
        heading(2, _TITLE.in_language(language)),
        element("div", *controls, klass="settings"),
        answer,
        command,
        element("p", escape_line(_REMARK.in_language(language)), klass="remark hint"),
        klass="what-if",
    )


def _base_rank(report: Report) -> tuple[Rehearsal, RehearsedRank, MemoryCurve] | None:
    """The fullest rank that completed steps, with its memory over time."""
    rehearsal = report.rehearsal
    if rehearsal is None or report.command != "rehearse":
        return None
    ranks = sorted(rehearsal.ranks, key=lambda rank: -rank.peak_allocated_bytes)
    for rank in ranks:
        run = rank.as_run
        timeline = next((one for one in rank.timelines if one.device == rank.device), None)
        if timeline is None or run is None or not run.samples or not run.tokens or not rank.steps:
            continue
        if any(device.device == rank.device for device in rank.devices):
            return rehearsal, rank, downsample_timeline(timeline)
    return None


def _rehearsed_settings(rehearsal: Rehearsal, rank: RehearsedRank) -> dict[str, Any]:
    run = rank.as_run
    assert run is not None
    assert run.samples
    assert run.tokens
    return {
        "micro-batch": run.samples[1],
        "seq-len": run.tokens[1],
        "accumulation": run.accumulation[1] if run.accumulation else 1,
        "stage": run.stage,
        "offload-optimizer": _offload_device(run.states_on),
        "offload-parameters": _offload_device(run.weights_on),
    }


def _offload_device(places: tuple[str, ...]) -> str:
    """The device of the most frequent placement, in the terms of ``--set``."""
    return _OFFLOAD_DEVICES.get(places[0], "none") if places else "none"


def _variant_data(one: AlsoRehearsed, base: dict[str, Any]) -> dict[str, Any] | None:
    """A rehearsal of ``--also`` with its settings; None if it completed no step."""
    if one.curve is None or one.samples is None or one.tokens is None:
        return None
    changed = {name: one.settings.get(name, base[name]) for name in ("offload-optimizer", "offload-parameters")}
    stage = one.settings.get("stage")
    return {
        "micro-batch": one.samples,
        "seq-len": one.tokens,
        "accumulation": one.accumulation or 1,
        "stage": int(stage) if stage is not None else base["stage"],
        **changed,
        "min-tokens": one.min_tokens or one.tokens,
        "allocated": one.peak_allocated_bytes,
        "reserved": one.peak_reserved_bytes,
        "host": one.host_bytes_of_node,
        "seconds": one.seconds_of_step,
        "curve": _curve_data(one.curve),
    }


def _time_data(rehearsal: Rehearsal) -> dict[str, Any] | None:
    found = rehearsal.step_scaling
    return {"fixed": found.fixed, "waits": found.waits, "bounds": found.by_samples} if found is not None else None


def _curve_data(curve: MemoryCurve) -> dict[str, Any]:
    return {"held": {clean_line(name): held for name, held in curve.held_mib.items()}, "phases": curve.phases}


def _with_own_value(own: int, values: tuple[int, ...]) -> list[int]:
    return sorted({own, *values})


def _command_template(report: Report, rehearsal: Rehearsal) -> dict[str, Any]:
    """The command that rehearses the choice, split where the chosen settings are inserted."""
    call = report.call
    options = list(call.options) if call is not None else []
    if "--gpus" in options:
        del options[(at := options.index("--gpus")) : at + 2]
    changed = () if rehearsal.changed is msgspec.UNSET else rehearsal.changed
    words = (call.command if call is not None and call.command else None) or rehearsal.command
    return {
        "options": clean_line(shlex.join(options)),
        "words": clean_line(shlex.join(words)),
        "changed": {one.name: clean_line(one.value) for one in changed},
    }
