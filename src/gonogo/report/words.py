"""The report's own words, in both languages, and how sizes and counts are written."""

from __future__ import annotations

from gonogo.finding import Applicability, Fix, Level, Report, Text
from gonogo.finding.log_answer import Clue
from gonogo.finding.words import CATEGORIES, PHASE_NAMES, size

WORDS: dict[str, Text] = {
    **CATEGORIES,
    **PHASE_NAMES,
    "error": Text("error", "错误"),
    "risk": Text("risk", "风险"),
    "warning": Text("warning", "警告"),
    "note": Text("note", "提示"),
    "certain": Text("certain", "确定"),
    "likely": Text("likely", "很可能"),
    "possible": Text("possible", "可能"),
    "certainty": Text("certainty", "确定程度"),
    "cause": Text("cause", "原因"),
    "help": Text("help", "解决办法"),
    "confirm": Text("how to confirm", "如何确认"),
    "clues": Text("Clues", "线索"),
    "next": Text("next", "下一步"),
    "reason": Text("reason", "理由"),
    "others": Text("Less likely", "可能性较小的"),
    "fix": Text("suggested fix", "修改"),
    "safe": Text("safe", "可自动应用"),
    "unsafe": Text("changes behaviour: --unsafe-fixes", "会改变行为：--unsafe-fixes"),
    "manual": Text("manual", "需手工修改"),
    "apply": Text("apply with", "应用方式"),
    "verdict": Text("verdict", "结论"),
    "source": Text("source", "来源"),
    "rank": Text("rank", "rank"),
    "module": Text("module", "模块"),
    "parameter": Text("parameter", "参数"),
    "operator": Text("operator", "算子"),
    "operand": Text("operand", "操作数"),
    "operands": Text("Inputs of the failing operator", "出错算子的输入"),
    "device": Text("device", "设备"),
    "dtype": Text("dtype", "数据类型"),
    "shape": Text("shape", "形状"),
    "owner": Text("tensor", "对应张量"),
    "where": Text("where", "位置"),
    "what": Text("what", "内容"),
    "outcome": Text("outcome", "结果"),
    "as_run": Text("Training setup", "训练设置"),
    "as_seen": Text("actual", "实际值"),
    "model": Text("model", "模型"),
    "batch": Text("batch", "batch"),
    "tokens_a_sample": Text("tokens per sample", "每个样本的 token 数"),
    "precision": Text("precision", "精度"),
    "strategy": Text("strategy", "并行策略"),
    "checkpointing": Text("gradient checkpointing", "梯度检查点"),
    "attention": Text("attention", "注意力实现"),
    "optimizer_class": Text("optimizer", "优化器"),
    "versions": Text("versions", "版本"),
    "similar": Text("Similar public threads (the cause may differ)", "相似的公开讨论（原因可能不同）"),
    "read": Text("Further evidence", "进一步的证据"),
    "covered": Text("Covered", "已检查"),
    "skipped": Text("Not covered", "未检查"),
    "assumptions": Text("Assumptions (values that a rehearsal can't know)", "假设（排练中无法得知的值）"),
    "times": Text("times", "次数"),
    "memory": Text("Peak GPU memory", "GPU 显存峰值"),
    "categories": Text("GPU memory at the peak, by category", "峰值时的 GPU 显存构成"),
    "phases": Text("Peak memory per phase", "各阶段的显存峰值"),
    "phase": Text("phase", "阶段"),
    "trainer": Text("trainer", "训练器"),
    "modules": Text("Modules with the most memory at the peak", "峰值时占用最多的模块"),
    "parts": Text("GPU memory at the peak, by part", "峰值时各部分的占用"),
    "host_parts": Text("Host memory at its peak, by part", "主机内存峰值时各部分的占用"),
    "part": Text("part", "部分"),
    "outside": Text("(outside any module)", "（不属于任何模块）"),
    "short_parameters": Text("params", "参数"),
    "short_gradients": Text("grads", "梯度"),
    "short_optimizer": Text("optimizer", "优化器"),
    "short_activations": Text("activ.", "激活"),
    "small_parts": Text("({count} small parts)", "（{count} 个小部分）"),
    "others_held": Text("other", "其他"),
    "sum": Text("sum", "合计"),
    "share": Text("share", "占比"),
    "used": Text("used", "占用"),
    "free": Text("free", "剩余"),
    "host": Text("Peak host memory", "主机内存峰值"),
    "allocated": Text("allocated", "已分配"),
    "reserved": Text("reserved", "已预留"),
    "allowance": Text("context", "上下文等"),
    "total": Text("capacity", "总量"),
    "peak_at": Text("peak phase", "峰值所在阶段"),
    "bytes": Text("size", "大小"),
    "peak": Text("peak", "峰值"),
    "pinned": Text("pinned", "锁页内存"),
    "available": Text("available", "可用"),
    "per_rank": Text("rank", "rank"),
    "per_node": Text("node", "节点"),
    "unknown": Text("not given", "未给出"),
    "estimated": Text("estimated from the rehearsed ranks", "由已排练的 rank 推算"),
    "failure": Text("What ended the program", "程序因何中止"),
    "collectives": Text("Collectives", "集合通信"),
    "completed": Text("completed", "完成"),
    "raised": Text("raised", "抛出异常"),
    "out-of-memory": Text("out of memory", "显存不足"),
    "diverged": Text("diverged", "各 rank 分歧"),
    "unsupported": Text("unsupported", "无法排练"),
    "timed-out": Text("timed out", "超时"),
    "killed": Text("killed", "被终止"),
    "interrupted": Text("interrupted", "被中断"),
}


def word(name: str, language: str) -> str:
    """The report's word of that name; a name it has no word for is its own."""
    text = WORDS.get(name)
    return text.in_language(language) if text else name


def how_to_apply(fix: Fix) -> str | None:
    """The command that applies a fix; None for one that only a person can apply."""
    if not fix.edits or fix.applicability is Applicability.MANUAL:
        return None
    return "gonogo check --fix" if fix.applicability is Applicability.SAFE else "gonogo check --fix --unsafe-fixes"


def counted(report: Report, language: str) -> str:
    """``1 error, 2 warnings``: how many findings the report has; empty where it has none."""
    counts = []
    for level in Level:
        if count := sum(finding.level is level for finding in report.findings):
            name = word(level.value, language)
            counts.append(f"{count} 个{name}" if language == "zh" else f"{count} {name}{'s' if count > 1 else ''}")
    return ("，" if language == "zh" else ", ").join(counts)


def colon(language: str) -> str:
    """The colon of the language, with the space that follows it in English."""
    return "：" if language == "zh" else ": "


def size_or_unknown(count: int | None, language: str) -> str:
    """Bytes, or ``not stated`` for None."""
    return size(count) if count is not None else word("unknown", language)


_MAX_LOCATIONS = 3


def said_of(clue: Clue, language: str) -> str:
    """A clue as a line: ``rank 0 is in … (run.log:3)``."""
    places = list(dict.fromkeys(f"{place.path}:{place.line}" for place in clue.places))[:_MAX_LOCATIONS]
    sentence = clue.text.in_language(language)
    if not places:
        return sentence
    return f"{sentence}（{'，'.join(places)}）" if language == "zh" else f"{sentence} ({', '.join(places)})"
