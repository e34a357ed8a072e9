from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.named_model import find_moe_mention, find_multimodal_mention
from gonogo.evidence.log.progress import is_before_first_step
from gonogo.evidence.log.stall import MAX_EARLY_SEQUENCE_NUMBER, STALL_WORDS, Stall, find_stall
from gonogo.evidence.rehearsal.rank_divergence import names_in_call, rank_divergence
from gonogo.hazards.facts.divergence_fixes import fix_divergent_branch
from gonogo.hazards.facts.leaf_modules import fix_with_leaf_modules
from gonogo.hazards.facts.zero_usage import stage_span
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    Field,
    Finding,
    Findings,
    Fix,
    Hazard,
    Pattern,
    RehearsalRecord,
    Run,
    translated,
)

_MOE_LAYERS_VARIABLE = "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES"
# Newer versions of DeepSpeed treat the blocks of these models as leaves (zero/leaf_module_config.py).
_LEAVES_BY_DEFAULT = ("mixtral", "qwen2_moe", "qwen3_moe")


_MAX_COLLECTIVES_PER_STEP = 100_000
"""More gathers than any model's first step makes: a run that has counted this many is long past it."""
_EXPERT_PATTERN = Pattern(r"(?i)expert|\bmoe\b")


class Zero3MoeHang(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that diverge in a block of experts under ZeRO-3."""
        divergence = rank_divergence(record)
        if divergence is None:
            return
        reached = [side for side in divergence.sides if _EXPERT_PATTERN.search(names_in_call(side))]
        if reached and divergence.gathers_weights and divergence.rank_condition is None:
            yield self.divergence_finding(
                divergence,
                divergence.most_informative_side(*reached),
                cure=self.cures,
                reason=self.texts["divergence_reason"],
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Run all experts on all ranks, or gather their block as a whole."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from fix_divergent_branch(divergence, run)
            yield from fix_with_leaf_modules(divergence, run)

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A mixture of experts under ZeRO-3 without leaf modules."""
        model = run.model
        if config.zero_stage != 3 or run.launch is None or model is None or not model.has_experts:
            return
        if run.framework in ("ms-swift", "llamafactory") or not config.raw("zero_optimization", "leaf_module").absent:
            return
        if any(b"leaf_module" in script.source.data for script in run.scripts):
            return
        if not run.launch.variables.get(_MOE_LAYERS_VARIABLE, Field.missing()).absent:
            return
        if run.accelerate is not None and b"moe_layer_cls_names" in run.accelerate.source.data:
            return
        older = run.environment.within("transformers", "<5")
        if older is False:
            return  # transformers 5 fuses the experts into one parameter, which every rank gathers
        if model.model_type in _LEAVES_BY_DEFAULT and run.environment.within("deepspeed", "<0.18") is not True:
            return
        named = run.arguments.model.span()
        yield self.finding(
            self.texts["cause_in_config"].format(model=model.name),
            certainty=Certainty.LIKELY if older and model.config is not None else Certainty.POSSIBLE,
            spans=(
                named or stage_span(run),
                stage_span(run) if named else None,
                run.environment.field("transformers").span(translated("this runs only the experts that were chosen")),
            ),
            confirm=translated("The model's code skips experts without tokens"),
        )

    log_words = STALL_WORDS

    def in_log(self, log: FailureLog) -> Findings:
        """A stall of a mixture of experts under ZeRO-3, most certain if the ranks gather different sizes."""
        stall = find_stall(log)
        experts = find_moe_mention(log)
        if stall is None or not stall.gathers_parameters or not (experts or _gathers_different_modules(log, stall)):
            return
        yield self.log_finding(
            stall.evidence,
            certainty=stall.cap_certainty(_judge_certainty(log, stall)) if experts else Certainty.POSSIBLE,
            extra_evidence=tuple(
                one for one in (experts, stall.trace_cache if experts else None) if isinstance(one, LineMatch)
            ),
            confirm=translated("The model has experts, and the run continues under ZeRO-2"),
        )


def _judge_certainty(log: FailureLog, stall: Stall) -> Certainty:
    """The certainty for a model with experts: certain if ranks diverge in a gather and it has no vision or audio."""
    if stall.has_diverged and stall.is_in_gather and not stall.disagreed and not find_multimodal_mention(log):
        return Certainty.CERTAIN
    return Certainty.LIKELY if stall.zero3 or stall.trace_cache or stall.has_diverged else Certainty.POSSIBLE


def _gathers_different_modules(log: FailureLog, stall: Stall) -> bool:
    """Whether ranks gather different modules, in a log that doesn't tell what kind of model it is."""
    if not stall.is_in_gather or find_multimodal_mention(log):
        return False
    # Before the end of the first step only ZeRO-3 runs this many collectives.
    early = MAX_EARLY_SEQUENCE_NUMBER < (
        stall.first_sequence or 0
    ) < _MAX_COLLECTIVES_PER_STEP and is_before_first_step(log)
    return bool(stall.zero3 or stall.has_diverged or early)
