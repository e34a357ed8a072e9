"""Which causes a stall's log speaks for, the most telling first. One line is left behind by all of them."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import msgspec

from gonogo.evidence.log.context import outside_training, under_fsdp, under_zero3
from gonogo.evidence.log.failure_log import FailureLog, Found
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Certainty
from gonogo.hazards.facts.stall import Stall, says_it_stalls, stall_of

PREPROCESSING = "nccl-timeout-preprocessing"
PORT_ZERO = "rendezvous-port-zero-hang"
GENERATE = "zero3-generate-without-synced-gpus"
MODALITIES = "zero3-mixed-modality-hang"
EXPERTS = "zero3-moe-hang"
UNEVEN = "uneven-data-per-rank-hang"
PEER_TO_PEER = "nccl-p2p-hang"

_GATHERS = ("_ALLGATHER_BASE", "ALLGATHER", "ALLGATHER_BASE", "ALLGATHER_COALESCED", "_REDUCE_SCATTER_BASE")

_PREPARES = Pattern(
    r"(?i)\d{1,3}%\|.*(?:examples?/s|\bex/s|samples/s|\bba/s)"
    r"|(?:running tokenizer|tokeniz\w*|\bmap\b|\bfilter\b|pre-?process\w*|grouping|packing|converting format"
    r"|\bsplit\b"
    r"|encoding|formatting|applying|adding eos|truncating|extracting|concatenat\w*)[^%|]{0,80}\d{1,3}%\|"
)
_AT_A_TIME_OUT = Pattern(r"\b\d{1,2}%\|[^|]*\|.*\[(?:[13]0|60|1:00|2:00|3:00):\d\d<")
_PREPARED = Pattern(r"100%\|")
_PREPARES_IN_CODE = (
    "main_process_first", "torch_distributed_zero_first", "rank_zero_first", "zero_first", "preprocess_dataset",
    "get_dataset", "tokenize_dataset", "prepare_dataset", "_prepare_dataset",
)  # fmt: skip
_SAYS_IT_PREPARES = Pattern(
    r"(?i)tokeniz(?:e[rd]?|ing|ation)\b|pre-?process|dataset\.map|data(?:set)?s? (?:processing|prep\w*)|(?:sample"
    r"|data) packing"
    r"|prep\w* (?:the )?data|process(?:ing)? the data|数据预?处理|预处理|分词|加载.{0,6}数据"
)
_TRAINS = Pattern(
    r"[{'\"]loss['\"]?: |\bloss ?[=:] ?\d|^\s*\d{1,3}%\|[^|]*\|.*(?:it/s|s/it)"
    r"|\b[Ee]poch:? ?\[?\d+\]?[:/ ]+ *\d+(?:%\||/)"
    r"|\bsteps?: +\d+%\|"
)
_STEPPED = Pattern(
    r"[{'\"]loss['\"]?: |^\s*\d{1,3}%\|[^|]*\| *[1-9]\d*/\d+ \[|\b[Ee]poch:? ?\d+: +\d+%\|[^|]*\| *[1-9]\d*/"
)
_NO_STEP = Pattern(r"\b0%\|[^|]*\| *0/\d+ \[")
_PORT_ZERO = r"main_process_port[\"']?\s*[:=]?\s*[\"']?0\b(?!\.)|--master[-_]port[= ]+0\b|\bMASTER_PORT=[\"']?0\b"
_PORT_ZERO_IN_LOG = Pattern(_PORT_ZERO.replace(r"(?!\.)", r"(?:$|[^.\d])"))
_INITIALIZES = Pattern(r"Initializing TorchBackend|init_process_group|cdb=None|Distributed backend already initialized")
_GENERATES_IN_CODE = (
    "transformers/generation", "generation_utils.py", ".generate(", "prediction_step", "trainer_seq2seq",
)  # fmt: skip
_SAYS_IT_GENERATES = Pattern(
    r"(?i)\b(?:in|during|at|when|while|before|after|calling)\s+(?:the )?(?:generat(?:e|ing|ion)\b|validation"
    r"|evaluat\w+|rollouts?\b)"
    r"|\.generate\(|\bgenerate\(\)|\bgenerat(?:e|es|ion|ing)\b.{0,40}\b(?:does(?:n't| not)|is(?:n't| not)|never"
    r"|hangs?"
    r"|freezes|stuck|do_sample)|\binference\b.{0,40}\b(?:hangs?|stuck)|hangs? in inference|predict_with_generate"
    r"|\bsynced_gpus\b|beam_search"
    r"|\b(?:validation|evaluation|generation|generate|eval)(?: step| loop| phase)?(?: is| gets?)? (?:step|loop"
    r"|hang|stuck|freez|hung)"
    r"|(?:生成|验证|评估|推理)(?:时|阶段|过程|中|卡)"
)
_MODALITIES = (
    r"(?i)\b(?:images?|videos?|audios?|vision|visual|pixel_values|multi-?modal\w*|mm_projector|vit|vlm|llava\w*"
    r"|internvl\w*)\b"
    r"|Qwen[\w.]*-?(?:VL|Omni)|MiniCPM-[Vo]|mllama|PaliGemma|Llama-?3\.2-\d+B-Vision|图文|图像|图片|视频|音频|多模态"
)
_MIXES = (
    r"(?i)\b(?:mix(?:ed|ing|es|ture)?(?: of)?[- ](?:modal\w*|data\w*|batch\w*|text\w*|image\w*|video\w*|train\w*)"
    r"|text[- ]only|only text|pure[- ]text|without (?:an? )?(?:images?|videos?|pixel)"
    r"|no images?"
    r"|lack(?:s|ing)? images?|some (?:samples|batches|examples|data))\b|混合|纯文本|没有图|无图|同时(?:存在|有|包含)"
)
_EXPERTS = (
    r"(?i)\bmoe\b|[-_\d]moe\b|moe[-_]|mixtri?al|mixture[- ]of[- ]experts|sparsemoe|\bexperts?\b"
    r"|\d+B-A\d+(?:\.\d+)?B|\bdbrx\b"
    r"|deepseek-?_?(?:v[23]|moe|r1)(?:[^-\w]|$)|gpt-?oss|专家"
)
_UNEVEN = (
    r"(?i)IterableDataset|streaming[\"']?\s*[:=]\s*true|StreamingDataset|dispatch_batches|webdataset"
    r"|\b(?:last|final) (?:few )?(?:batch|step|iteration|mini-?batch)(?:es|s)?\b"
    r"|\b(?:end|last (?:batch|step|part)) of (?:the |an |each |every |first |one )*epo\w*|uneven"
    r"|finish(?:ing|es)? (?:the |an |each )*epoch|\b\d+ batches\b.{0,80}\b\d+ batches\b|unequal"
    r"|different (?:number|amount)s? of (?:\w+ ){0,2}(?:batch|sample|data|step)"
    r"|(?:does|do|did|has|have)(?:n't| not)? (?:no |not |n't )?(?:have |got |get )?(?:any |no )(?:more )?(?:batch"
    r"|data\b|sample)"
    r"|(?:run|ran|runs|running) out of (?:data|batch|sample)|no data (?:left )?to load"
    r"|\b(?:has|have|had|gets?|receives?|with|needs?) (?:one |an? |\d+ )?(?:extra|more|fewer|less) (?:batch|step"
    r"|sample|iteration)"
    r"|(?:number|amount) of (?:\w+ ){0,3}(?:batch|sample|step)e?s? (?:\w+ ){0,4}(?:differ|not (?:the )?(?:same"
    r"|equal)|var(?:y|ies))"
    r"|dynamic (?:number of )?batch|exhausted inputs|最后[一几]?(?:个|步|些)?(?: ?)(?:batch|step|批|epoch|迭代)"
    r"|epoch (?:结束|末尾|最后)"
    r"|数据(?:量)?不(?:均|一致|等)|长度不一"
)
_AFTER_AN_EPOCH = Pattern(r"(?i)\bafter (?:the |an |each |every |1st |first |one |\d )+epoch")
_CONSUMER = (
    r"(?i)\b(?:RTX|GeForce)[ -]?(?:GTX |RTX )?(?:A\d{4}|\d{4})|RTX PRO \d{4}|\bL40S?\b"
    r"|(?:\d ?[x×*张块卡] ?|\b(?:multi\w*|several|two|four|eight|on|with|of|using|nvidia) (?:\d )?"
    r"|[张块用卡])[345]0[6-9]0\b"
    r"|\b[345]0[6-9]0(?:s|ti|d| ?gpus?| ?显卡| ?卡| cards?)\b|\b[345]0[6-9]0 ?(?:上|多卡|双卡|\*|x) ?"
)
_PEER_TO_PEER = r"NCCL_P2P_DISABLE|NCCL_P2P_LEVEL|via P2P/(?:IPC|CUMEM|direct)|\bp2p\b|P2P"
_INIT_COMPLETE = Pattern(r"NCCL INFO .*(?:Init COMPLETE|Connected all (?:rings|trees))")
_NCCL = Pattern(r"(?i)\bnccl\b|通信超时|通讯超时")
_TRACE_CACHE = Pattern(r"Invalidate trace cache")
_DISTRIBUTED = (
    r"(?i)nccl|deepspeed|torchrun|\bddp\b|fsdp|distributed|accelerate|multi[- ]?(?:gpu|node|card)"
    r"|multiple (?:\w+ )?(?:gpus|cards|[345]0)"
    r"|zero[-_ ]?[23]|num_processes|nproc|\brank\b|多卡|多机|双卡|[248] ?卡|各卡"
)
_FEW = 20
_MANY = 1 << 40
_DEEPSPEED = Pattern(r"(?i)deepspeed|\bzero\b")
_INFLIGHT = Pattern(r"still have inflight params")


class Cause(msgspec.Struct, frozen=True):
    """A cause that the log speaks for; ``also`` are the lines that do, beside the stall's own."""

    certainty: Certainty
    evidence: Found | LogLine
    also: tuple[Found | LogLine, ...] = ()


class _Ranking(msgspec.Struct):
    stall: Stall
    distributed: bool
    causes: dict[str, Cause] = {}

    def add(self, name: str, certainty: Certainty, *also: Found | LogLine | None) -> None:
        """The first that is more than possible stays so: what else fits is then only possible."""
        sure = any(cause.certainty is not Certainty.POSSIBLE for cause in self.causes.values())
        if sure or self.stall.another_failure or not self.distributed:
            certainty = Certainty.POSSIBLE
        told = tuple(one for one in also if one is not None)
        self.causes.setdefault(name, Cause(certainty, self.stall.evidence, told))


_KNOWN: WeakKeyDictionary[FailureLog, dict[str, Cause]] = WeakKeyDictionary()


def cause_of_stall(log: FailureLog, name: str) -> Cause | None:
    """The cause of that hazard's name where the log of a stall speaks for it, or None."""
    if log not in _KNOWN:
        stall = stall_of(log)
        _KNOWN[log] = _cut_while_preparing(log) if stall is None else _ranked(log, stall)
    return _KNOWN[log].get(name)


def _cut_while_preparing(log: FailureLog) -> dict[str, Cause]:
    """A traceback without its end beside a bar of data preparation that had come to a default time-out's age."""
    if not log.cut or log.errors or outside_training(log):
        return {}
    bar = next((found for found in reversed([*log.find_all(_AT_A_TIME_OUT)]) if _PREPARES.search(found.text)), None)
    return {} if bar is None else {PREPROCESSING: Cause(Certainty.LIKELY, bar)}


def _ranked(log: FailureLog, stall: Stall) -> dict[str, Cause]:
    zero3 = _is_zero3(log)
    distributed = bool(stall.time_outs or zero3 or _found(log, Pattern(_DISTRIBUTED), _DISTRIBUTED))
    ranking = _Ranking(stall, distributed)
    trains = log.find(_TRAINS)
    stepped = log.find(_STEPPED)
    _preprocessing(log, ranking, trains)
    if port := _found(log, _PORT_ZERO_IN_LOG, _PORT_ZERO):
        ranking.add(PORT_ZERO, Certainty.LIKELY if trains is None else Certainty.POSSIBLE, _line(port))
    if zero3 is not False and log.find(_INFLIGHT) is None:
        _zero3(log, ranking, zero3)
    _uneven(log, ranking)
    _peer_to_peer(log, ranking, stepped)
    if not ranking.causes and not stall.time_outs and (beside := _initializing_beside(log, _line_of(stall.evidence))):
        ranking.add(PORT_ZERO, Certainty.POSSIBLE, beside)
    return ranking.causes


def _preprocessing(log: FailureLog, ranking: _Ranking, trains: Found | None) -> None:
    stall = ranking.stall
    if not stall.time_outs and stall.by_store is None:
        here = _line_of(stall.evidence)
        if _SAYS_IT_PREPARES.search(here.text) and _NCCL.search(here.text):
            ranking.add(PREPROCESSING, Certainty.POSSIBLE)
        return
    # A process group that has trained has counted hundreds of collectives.
    early = stall.by_store is not None if not stall.time_outs else (stall.first_sequence or _MANY) <= _FEW
    activity = _last_activity(log, _line_of(stall.evidence))
    bar = activity if activity is not None and _PREPARES.search(activity.text) else None
    if bar is not None and not _PREPARED.search(bar.text):
        ranking.add(PREPROCESSING, Certainty.CERTAIN, bar)
    elif early and (bar is not None or log.passes(*_PREPARES_IN_CODE)):
        ranking.add(PREPROCESSING, Certainty.LIKELY, bar)
    elif (early or trains is None) and (said := log.find(_SAYS_IT_PREPARES)):
        ranking.add(PREPROCESSING, Certainty.LIKELY, said)
    elif early and stall.time_outs and stall.time_outs[0].numel in (None, 1):
        ranking.add(PREPROCESSING, Certainty.POSSIBLE)


def _last_activity(log: FailureLog, before: LogLine) -> LogLine | None:
    """The last line before, or the line itself, on which data was prepared or a step was taken."""
    for line in reversed((*log.lines_before(before, 40), before)):
        if _PREPARES.search(line.text) or _TRAINS.search(line.text):
            return line
    return None


def _initializing_beside(log: FailureLog, line: LogLine) -> LogLine | None:
    around = (*log.lines_before(line, 8), line, *log.lines_after(line, 4))
    return next((one for one in reversed(around) if _INITIALIZES.search(one.text)), None)


def _line_of(evidence: Found | LogLine) -> LogLine:
    return evidence.line if isinstance(evidence, Found) else evidence


def _zero3(log: FailureLog, ranking: _Ranking, known: bool | None) -> None:
    stall = ranking.stall
    cache = log.find(_TRACE_CACHE)
    zero3 = known or cache is not None or stall.in_operation(*_GATHERS)
    if not zero3:
        _mixed_without_stage(log, ranking)
        return
    generates = log.passes(*_GENERATES_IN_CODE)
    if generates and not log.setup.mentions(r"synced_gpus\s*=\s*True"):
        ranking.add(GENERATE, Certainty.LIKELY)
    modality = _found(log, Pattern(_MODALITIES), _MODALITIES)
    mixes = _found(log, Pattern(_MIXES), _MIXES)
    expert = _found(log, Pattern(_EXPERTS), _EXPERTS)
    sure = Certainty.LIKELY if known or cache or stall.diverged else Certainty.POSSIBLE
    if modality and mixes:
        ranking.add(MODALITIES, sure, _line(mixes), cache)
    if expert:
        decided = stall.diverged and stall.in_operation(*_GATHERS) and not modality
        ranking.add(EXPERTS, Certainty.CERTAIN if decided else sure, _line(expert), cache)
    said = log.find(_SAYS_IT_GENERATES)
    if known and said and not generates:
        ranking.add(GENERATE, Certainty.LIKELY if not (modality and cache) else Certainty.POSSIBLE, said)
    if modality:
        ranking.add(MODALITIES, sure if cache or stall.diverged else Certainty.POSSIBLE, _line(modality), cache)
    # Before the first step is done, only ZeRO-3 has gathered that often: a module that not all ranks call.
    early = log.find(_STEPPED) is None and (stall.first_sequence or 0) > _FEW and log.find(_NO_STEP) is not None
    if not modality and not expert and stall.in_operation(*_GATHERS) and (known or stall.diverged or early):
        ranking.add(EXPERTS, Certainty.POSSIBLE)
    elif not modality and not expert and cache is not None:
        ranking.add(MODALITIES, Certainty.POSSIBLE, cache)


def _mixed_without_stage(log: FailureLog, ranking: _Ranking) -> None:
    """Mixed data that stalls where nothing tells the stage: DeepSpeed's users run such models under ZeRO-3."""
    modality = _found(log, Pattern(_MODALITIES), _MODALITIES)
    mixes = _found(log, Pattern(_MIXES), _MIXES)
    if modality and mixes and log.setup.zero_stage is None:
        named = log.find(_DEEPSPEED)
        ranking.add(MODALITIES, Certainty.LIKELY if named else Certainty.POSSIBLE, _line(mixes), named)


def _uneven(log: FailureLog, ranking: _Ranking) -> None:
    stall = ranking.stall
    said = _found(log, Pattern(_UNEVEN), _UNEVEN)
    if said:
        ranking.add(UNEVEN, Certainty.LIKELY, _line(said))
    elif stall.diverged and not stall.in_operation(*_GATHERS):
        ranking.add(UNEVEN, Certainty.POSSIBLE)
    elif near_end := _nearly_done(log):
        ranking.add(UNEVEN, Certainty.POSSIBLE, near_end)
    elif not ranking.causes and (after := log.find(_AFTER_AN_EPOCH)):
        ranking.add(UNEVEN, Certainty.POSSIBLE, after)


def _peer_to_peer(log: FailureLog, ranking: _Ranking, stepped: Found | None) -> None:
    consumer = _found(log, Pattern(_CONSUMER), _CONSUMER)
    talks = _found(log, Pattern(_PEER_TO_PEER), _PEER_TO_PEER)
    complete = log.find(_INIT_COMPLETE)
    if not consumer and not (talks and (complete or says_it_stalls(log))):
        return
    sequence = ranking.stall.first_sequence
    if stepped is not None and sequence is not None and sequence > _FEW:
        return
    sure = consumer and (stepped is None or (sequence is not None and sequence <= _FEW))
    ranking.add(PEER_TO_PEER, Certainty.LIKELY if sure else Certainty.POSSIBLE, _line(consumer or talks), complete)


_PROGRESS = Pattern(r"\b\d{1,3}%(?:\|[^|]*\|)? *(\d{1,9})/(\d{1,9})(?: \[|[\"'”]|\s|$)")


def _nearly_done(log: FailureLog) -> Found | None:
    """The last state of a training progress bar, where it stopped within the last steps."""
    last = next(iter([*log.find_all(_PROGRESS)][-1:]), None)
    if last is None or _PREPARES.search(last.text):
        return None
    done, total = int(last.match.group(1)), int(last.match.group(2))
    return last if total >= 20 and 0.96 * total <= done <= total else None


def _is_zero3(log: FailureLog) -> bool | None:
    told = under_zero3(log)
    if told is None and under_fsdp(log):
        return False
    return told


def _found(log: FailureLog, in_log: Pattern, in_setup: str) -> Found | bool:
    """The log's line with a pattern, True where only the setup has it, else False."""
    return log.find(in_log) or log.setup.mentions(in_setup)


def _line(found: Found | bool) -> Found | None:
    return found if isinstance(found, Found) else None
