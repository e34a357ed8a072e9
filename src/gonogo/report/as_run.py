"""What was run, as a table at the top of a rehearsal's report: as observed in its processes, not as configured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gonogo.finding import Text, translated
from gonogo.finding.as_run import AsRun
from gonogo.finding.rehearsal import Rehearsal
from gonogo.report.table import Table
from gonogo.report.untrusted import clean_line
from gonogo.report.words import word

_LISTED_PACKAGES = ("torch", "deepspeed", "transformers", "accelerate", "trl", "ms-swift")
_MAX_CLASSES_SHOWN = 3
_SHARED_SEQUENCES = translated("{tokens}, split over {ranks} ranks")
_EXPLICIT_VALUE = translated("set to: {what}")


def as_run_table(rehearsal: Rehearsal, language: str) -> Table:
    """One row per fact, aggregated over all ranks; no rows if nothing was trained."""
    seen = [rank.as_run for rank in rehearsal.ranks if rank.as_run is not None]
    rows = [(word(name, language), clean_line(text)) for name, text in _as_run_rows(rehearsal, seen, language) if text]
    return Table(word("as_run", language), ("", word("as_seen", language)), tuple(rows))


def token_range(rehearsal: Rehearsal) -> tuple[int, int] | None:
    """The minimum and maximum tokens per sample, over all ranks; None if none were observed."""
    return _range_over_ranks(
        [rank.as_run for rank in rehearsal.ranks if rank.as_run is not None], lambda run: run.sample_tokens
    )


def format_range(bounds: tuple[int, int], language: str) -> str:
    """A range such as ``187 to 512``, or a single number if both ends are equal."""
    least, most = bounds
    if least == most:
        return f"{most:,}"
    return f"{least:,} 至 {most:,}" if language == "zh" else f"{least:,} to {most:,}"


def _describe_tokens(tokens: tuple[int, int], ranks: int, language: str) -> str:
    text = format_range(tokens, language)
    return text if ranks == 1 else _SHARED_SEQUENCES.format(tokens=text, ranks=ranks).in_language(language)


def _range_over_ranks(
    runs: list[AsRun], get_range: Callable[[AsRun], tuple[int, int] | None]
) -> tuple[int, int] | None:
    ranges = [given for run in runs if (given := get_range(run)) is not None]
    return (min(least for least, _ in ranges), max(most for _, most in ranges)) if ranges else None


def _as_run_rows(rehearsal: Rehearsal, runs: list[AsRun], language: str) -> Iterator[tuple[str, str]]:
    if not runs:
        return
    run = runs[0]
    tokens = token_range(rehearsal)
    yield "model", _describe_model(run, language)
    yield "batch", _describe_batch(rehearsal, runs, language)
    yield "tokens_a_sample", _describe_tokens(tokens, run.sequence_ranks, language) if tokens else ""
    yield "precision", _describe_precision(run, language)
    yield "strategy", _describe_strategy(run, language)
    yield "checkpointing", _describe_checkpointing(run, language) if run.accumulation or run.recomputed else ""
    yield "attention", ", ".join(run.attention)
    yield "optimizer_class", run.optimizer
    yield "versions", ", ".join(_version_texts(rehearsal.versions, run))


def _version_texts(versions: dict[str, str], run: AsRun) -> Iterator[str]:
    """The versions of the packages that every training needs, and of those that this one was seen to use."""
    used = (
        ("peft", run.adapter),
        ("bitsandbytes", run.quantized),
        ("flash-attn", "flash_attention_2" in run.attention),
    )
    for name in (*_LISTED_PACKAGES, *(name for name, is_used in used if is_used)):
        if name in versions:
            yield f"{name} {versions[name]}"


def _join_parts(parts: list[Text], language: str) -> str:
    return ("，" if language == "zh" else ", ").join(part.in_language(language) for part in parts)


def _format_count(count: int) -> str:
    """A count with three significant digits, such as ``7.62 B`` or ``40.4 M``."""
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= unit:
            return f"{float(f'{count / unit:.3g}'):g} {name}"
    return str(count)


_SHORT_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}


def _short_dtype(name: str) -> str:
    """The short name of a dtype that configs and papers use, such as ``bf16`` for bfloat16."""
    return _SHORT_DTYPES.get(name, name)


def _describe_model(run: AsRun, language: str) -> str:
    name = f"{run.model} ({run.adapter})" if run.adapter else run.model
    parts = [Text(name, name), translated("{count} parameters").format(count=_format_count(run.parameters))]
    if run.trainable != run.parameters:
        parts.append(translated("{count} trainable").format(count=_format_count(run.trainable)))
    if run.quantized:
        parts.append(translated("{count} quantized").format(count=_format_count(run.quantized)))
    return _join_parts(parts, language)


def _describe_batch(rehearsal: Rehearsal, runs: list[AsRun], language: str) -> str:
    ranks = rehearsal.world_size
    parts = [translated("1 rank") if ranks == 1 else Text(f"{ranks} ranks", f"{ranks} 个 rank")]
    configured = runs[0].asked
    for name, given, wanted in (
        (translated("micro-batch {count}"), _range_over_ranks(runs, lambda run: run.samples), configured.micro_batch),
        (
            translated("gradient accumulation {count}"),
            _range_over_ranks(runs, lambda run: run.accumulation),
            configured.accumulation,
        ),
    ):
        if given is None:
            continue
        text = Text(*(name.format(count=format_range(given, each)).in_language(each) for each in ("en", "zh")))
        if wanted is not None and wanted != given[1]:
            text = translated("{said} ({asked})").format(said=text, asked=_EXPLICIT_VALUE.format(what=wanted))
        parts.append(text)
    return _join_parts(parts, language)


def _describe_precision(run: AsRun, language: str) -> str:
    parts = []
    weights = [_short_dtype(name) for name in run.weights]
    if run.products and weights == [_short_dtype(run.products)]:
        parts.append(translated("{dtype} compute and weights").format(dtype=weights[0]))
    else:
        if run.products:
            parts.append(translated("{dtype} compute").format(dtype=_short_dtype(run.products)))
        if weights:
            dtypes = Text(" and ".join(weights), "、".join(weights))
            parts.append(translated("{dtype} weights").format(dtype=dtypes))
    if run.masters:
        parts.append(translated("{dtype} optimizer").format(dtype=_short_dtype(run.masters)))
    return _join_parts(parts, language)


def _describe_strategy(run: AsRun, language: str) -> str:
    none = translated("none: each process has its own model")
    parts = [Text(run.strategy, run.strategy) if run.strategy else none]
    for where, what in (
        (run.states_on, translated("optimizer states on {where}")),
        (run.weights_on, translated("weights on {where}")),
    ):
        if where and where[0] in ("cpu", "nvme"):
            parts.append(what.format(where=where[0]))
    return _join_parts(parts, language)


def _describe_checkpointing(run: AsRun, language: str) -> str:
    if not run.recomputed:
        return translated("off").in_language(language)
    shown = [f"{each.count}/{each.of} {each.module_class}" for each in run.recomputed[:_MAX_CLASSES_SHOWN]]
    if len(run.recomputed) > _MAX_CLASSES_SHOWN:
        shown.append("…")
    modules = ", ".join(shown)
    return translated("on, {modules}").format(modules=modules).in_language(language)
