import ast

from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.facts.training_script import run_mentions, trained_pretrained_calls
from gonogo.hazards.rule import Call, Certainty, Findings, Hazard, Pattern, Run, Script, Text, translated

_EMBEDDING_ASSERT_PATTERN = Pattern(r"srcIndex < srcSelectDimSize")
_GATHER_ASSERT_PATTERN = Pattern(
    r"vectorized gather kernel index out of bounds|index out of bounds.{0,3}['\"`]? ?failed"
    r"|Assertion `?(?:-sizes\[i\] <= index|idx_dim >= 0|ind >= ?0|index >= -sizes)"
)
_SCATTER_ASSERT_PATTERN = Pattern(r"ScatterGatherKernel\.cu")
_CPU_INDEX_ERROR_PATTERN = Pattern(
    r"index out of range in self|index out of range: Tried to access index (\d+) out of table with (\d+) rows"
)
_DEVICE_ASSERT_PATTERN = Pattern(
    r"device-side assert(?:ion)?(?: triggered)?|CUDA error: (?:unspecified )?device-side assert|error \(?710\)?"
)
_LABELS_PATTERN = Pattern(
    r"t >= 0 && t < n_classes|cur_target >= 0 && cur_target < n_classes|Target \d+ is out of bounds"
)
_OTHER_ASSERT_PATTERN = Pattern(
    r"probability tensor contains|Assertion `?input_val|Assertion `?target_val|CUDA_KERNEL_ASSERT"
)
_TRAINING_PATTERN = Pattern(r"(?i)train|fine-?tun|\bsft\b|backward|compute_loss|微调|训练|\blora\b")
_POSITION_EMBEDDING_FRAMES = ("position_emb", "embed_positions", "wpe(", "pos_embed", "positional")
_EMBEDDING_LOOKUP_FRAMES = (
    "torch.embedding(",
    "F.embedding(",
    "embed_tokens(",
    "word_embeddings(",
    "wte(",
    "modules/sparse.py",
)
_ADDED_TOKENS_PATTERN = Pattern(
    r"(?i)add_(?:special_)?tokens|added_tokens|resize_token_embeddings|len\(tokenizer\)|vocab_size|pad_token"
)

# Models whose embeddings have more rows than their tokenizers have tokens.
_FAMILIES_WITH_SPARE_ROWS = ("qwen", "phi", "gemma", "deepseek", "chatglm", "glm", "t5")
# Tokens that tokenizers usually have: adding them changes nothing.
_COMMON_SPECIAL_TOKENS = frozenset(
    ("<s>", "</s>", "<unk>", "<pad>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "<|endoftext|>", "<|im_end|>")
)


_GATHER_TITLE = translated("An index is out of range for the tensor of torch.gather or scatter")


class VocabIndexOutOfRange(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Tokens added to the tokenizer of a trained model whose embedding is never resized."""
        if b"add_tokens" not in script.source.data and b"add_special_tokens" not in script.source.data:
            return
        if run_mentions(run, script, b"resize_token_embeddings", b"resize_position", b"Embedding("):
            return
        if not any(True for one in (script, *run.scripts) for _ in trained_pretrained_calls(one)):
            return
        # Many models have spare rows: it depends on the model.
        likely = run.model is not None and bool(run.model.model_type or run.model.name)
        if run.model is not None and (run.model.model_type or run.model.name.lower()).startswith(
            _FAMILIES_WITH_SPARE_ROWS
        ):
            return
        for call in script.calls("*.add_tokens", "*.add_special_tokens"):
            added = _added_tokens(script, call)
            if not added:
                continue
            quoted = [f'"{word}"' for word in added[:4]]
            yield self.finding(
                self.texts["cause"].format(
                    tokens=Text(", ".join(quoted), "、".join(quoted)),
                    get="gets an id" if len(added) == 1 else "get ids",
                ),
                certainty=Certainty.LIKELY if likely and not script.guarded_by(call.node) else Certainty.POSSIBLE,
                spans=call.place.span(),
                confirm=translated("len(tokenizer) after adding is greater than model.config.vocab_size"),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """The embedding's assertion, an index error in an embedding, or an unspecific device-side assertion."""
        if is_outside_training(log):
            return
        seen = _find_evidence(log)
        if seen is None:
            return
        evidence, certainty = seen
        positions = any(error.passes(*_POSITION_EMBEDDING_FRAMES) for error in log.errors)
        if positions:
            certainty = Certainty.POSSIBLE
        yield self.log_finding(
            evidence,
            self._format_cause(log),
            title=translated("An index is out of range for the tensor of torch.gather or scatter")
            if _is_gather_assertion(log)
            else None,
            certainty=certainty,
            cure=(
                *self._index_layout_cures(log),
                self.texts["resize_cure"],
                self.texts["same_tokenizer_cure"],
                self.texts["find_sample_cure"],
            ),
            confirm=translated("len(tokenizer) is larger than model.get_input_embeddings().num_embeddings"),
        )

    def _format_cause(self, log: FailureLog) -> Text:
        if log.find(_LABELS_PATTERN) is not None and log.find(_EMBEDDING_ASSERT_PATTERN) is None:
            return self.texts["label_cause"]
        if _is_gather_assertion(log):
            return self.texts["gather_cause"]
        return self.texts["embedding_cause"].format(
            added=translated(", and the log mentions added tokens")
            if log.find(_ADDED_TOKENS_PATTERN) is not None
            else translated(" (or a position, where the sequence is too long)")
        )

    def _index_layout_cures(self, log: FailureLog) -> tuple[Text, ...]:
        """What to try first if a gather or scatter failed: its layout, before the vocabulary."""
        if not _is_gather_assertion(log):
            return ()
        return (self.texts["packing_cure"],)


def _is_gather_assertion(log: FailureLog) -> bool:
    """Whether the assertion is that of torch.gather or scatter, and no embedding's."""
    return log.find(_SCATTER_ASSERT_PATTERN) is not None and log.find(_EMBEDDING_ASSERT_PATTERN) is None


def _find_evidence(log: FailureLog) -> tuple[LoggedError | LineMatch, Certainty] | None:
    """The evidence of a bad index, and the certainty."""
    if found := log.find(_EMBEDDING_ASSERT_PATTERN):
        return found, Certainty.CERTAIN
    in_embedding = any(error.passes(*_EMBEDDING_LOOKUP_FRAMES) for error in log.errors)
    for error in log.errors_of("IndexError", "RuntimeError", says=_CPU_INDEX_ERROR_PATTERN):
        return error, Certainty.CERTAIN if error.passes(*_EMBEDDING_LOOKUP_FRAMES) else Certainty.LIKELY
    if found := log.find(_LABELS_PATTERN):
        return found, Certainty.POSSIBLE
    if found := log.find(_GATHER_ASSERT_PATTERN):
        return found, Certainty.LIKELY if in_embedding or "vectorized" in found.text else Certainty.POSSIBLE
    if (found := log.find(_DEVICE_ASSERT_PATTERN)) and log.find(_OTHER_ASSERT_PATTERN) is None:
        sure = in_embedding or log.find(_ADDED_TOKENS_PATTERN) is not None
        return found, Certainty.LIKELY if sure and log.find(_TRAINING_PATTERN) is not None else Certainty.POSSIBLE
    return None


def _added_tokens(script: Script, call: Call) -> list[str]:
    """The tokens that a call adds, except those that tokenizers usually have."""
    if not call.node.args:
        return []
    given = call.node.args[0]
    values: list[ast.expr | None] = [given]
    if isinstance(given, ast.Dict):
        values = list(given.values)
    words: list[str] = []
    for value in values:
        for one in value.elts if isinstance(value, (ast.List, ast.Tuple)) else (value,):
            word = script.field(one).string if isinstance(one, ast.expr) else None
            if word is not None and word not in _COMMON_SPECIAL_TOKENS:
                words.append(word)
    return words
