"""The report's own vocabulary in both languages, and the formatting of sizes and counts."""

from __future__ import annotations

from gonogo.finding import Applicability, Fix, Level, Report, Text, translated
from gonogo.finding.log_answer import Clue
from gonogo.finding.words import CATEGORIES, PHASE_NAMES, size

WORDS: dict[str, Text] = {
    **CATEGORIES,
    **PHASE_NAMES,
    "error": translated("error"),
    "risk": translated("risk"),
    "warning": translated("warning"),
    "note": translated("note"),
    "certain": translated("certain"),
    "likely": translated("likely"),
    "possible": translated("possible"),
    "certainty": translated("certainty"),
    "cause": translated("cause"),
    "help": translated("help"),
    "confirm": translated("how to confirm"),
    "clues": translated("Clues"),
    "next": translated("next"),
    "reason": translated("reason"),
    "others": translated("Less likely"),
    "fix": translated("suggested fix"),
    "safe": translated("safe"),
    "unsafe": translated("changes behavior: --unsafe-fixes"),
    "manual": translated("manual"),
    "apply": translated("apply with"),
    "verdict": translated("verdict"),
    "source": translated("source"),
    "rank": translated("rank"),
    "module": translated("module"),
    "parameter": translated("parameter"),
    "operator": translated("operator"),
    "operand": translated("operand"),
    "operands": translated("Inputs of the failing operator"),
    "device": translated("device"),
    "dtype": translated("dtype"),
    "shape": translated("shape"),
    "owner": translated("tensor"),
    "where": translated("where"),
    "what": translated("what"),
    "outcome": translated("outcome"),
    "as_run": translated("Training setup"),
    "as_seen": translated("actual"),
    "model": translated("model"),
    "batch": translated("batch"),
    "tokens_a_sample": translated("tokens per sample"),
    "precision": translated("precision"),
    "strategy": translated("strategy"),
    "checkpointing": translated("gradient checkpointing"),
    "attention": translated("attention", "setting"),
    "optimizer_class": translated("optimizer"),
    "versions": translated("versions"),
    "similar": translated("Similar public threads (the cause may differ)"),
    "read": translated("Further evidence"),
    "covered": translated("Covered"),
    "skipped": translated("Not covered"),
    "assumptions": translated("Assumptions (values that a rehearsal can't know)"),
    "times": translated("times"),
    "memory": translated("Peak GPU memory"),
    "routing": translated("Peak allocated memory for the possible expert routings"),
    "no_tokens": translated("no token"),
    "even_tokens": translated("even share (rehearsed)"),
    "all_tokens": translated("all tokens"),
    "fits_tokens": translated("fits up to"),
    "categories": translated("GPU memory at the peak, by category"),
    "phases": translated("Peak memory per phase"),
    "phase": translated("phase"),
    "trainer": translated("trainer"),
    "modules": translated("Modules with the most memory at the peak"),
    "parts": translated("GPU memory at the peak, by part"),
    "host_parts": translated("Host memory at its peak, by part"),
    "part": translated("part"),
    "outside": translated("(outside any module)"),
    "short_parameters": translated("params"),
    "short_gradients": translated("grads"),
    "short_optimizer": translated("optimizer"),
    "short_activations": translated("activ."),
    "small_parts": translated("({count} small parts)"),
    "others_held": translated("other"),
    "sum": translated("sum"),
    "share": translated("share"),
    "used": translated("used"),
    "free": translated("free"),
    "host": translated("Peak host memory"),
    "allocated": translated("allocated"),
    "reserved": translated("reserved"),
    "allowance": translated("context"),
    "total": translated("capacity"),
    "peak_at": translated("peak phase"),
    "bytes": translated("size"),
    "peak": translated("peak"),
    "pinned": translated("pinned"),
    "available": translated("available"),
    "per_rank": translated("rank"),
    "per_node": translated("node"),
    "unknown": translated("not given"),
    "estimated": translated("estimated from the rehearsed ranks"),
    "failure": translated("What ended the program"),
    "collectives": translated("Collectives"),
    "completed": translated("completed"),
    "raised": translated("raised"),
    "out-of-memory": translated("out of memory"),
    "diverged": translated("diverged"),
    "unsupported": translated("unsupported"),
    "timed-out": translated("timed out"),
    "killed": translated("killed"),
    "interrupted": translated("interrupted"),
}


def word(name: str, language: str) -> str:
    """The translation of a vocabulary name; unknown names are returned unchanged."""
    text = WORDS.get(name)
    return text.in_language(language) if text else name


def how_to_apply(fix: Fix) -> str | None:
    """The command that applies a fix; None if it has to be applied by hand."""
    if not fix.edits or fix.applicability is Applicability.MANUAL:
        return None
    return "gonogo check --fix" if fix.applicability is Applicability.SAFE else "gonogo check --fix --unsafe-fixes"


def counted(report: Report, language: str) -> str:
    """How many findings the report has, such as ``1 error, 2 warnings``; empty if it has none."""
    counts = []
    for level in Level:
        if count := sum(finding.level is level for finding in report.findings):
            name = word(level.value, language)
            counts.append(f"{count} 个{name}" if language == "zh" else f"{count} {name}{'s' if count > 1 else ''}")
    return ("，" if language == "zh" else ", ").join(counts)


def colon(language: str) -> str:
    """The colon of the language, followed by a space in English."""
    return "：" if language == "zh" else ": "


def size_or_unknown(count: int | None, language: str) -> str:
    """A size in bytes, or ``not stated`` for None."""
    return size(count) if count is not None else word("unknown", language)


_MAX_LOCATIONS = 3


def said_of(clue: Clue, language: str) -> str:
    """A clue as one line: ``rank 0 is in … (run.log:3)``."""
    places = list(dict.fromkeys(f"{place.path}:{place.line}" for place in clue.places))[:_MAX_LOCATIONS]
    sentence = clue.text.in_language(language)
    if not places:
        return sentence
    return f"{sentence}（{'，'.join(places)}）" if language == "zh" else f"{sentence} ({', '.join(places)})"
