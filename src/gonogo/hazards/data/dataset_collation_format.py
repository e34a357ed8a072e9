from gonogo.evidence.log.code_owner import code_owner_of_path
from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.facts.training_script import run_mentions
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Run, Script, Text, translated

_COLUMN_PATTERN = Pattern(r"[Pp]erhaps your features \(`?([\w.]{1,80})`? in this case\)")
_COLLATION_FRAMES = (
    "data_collator",
    "collate_fn",
    "default_collate",
    "_utils/collate.py",
    "_utils/fetch.py",
    "DataCollator",
    "torch_default_data_collator",
)
_TENSOR_CONVERSION_FRAMES = ("as_tensor", "convert_to_tensors")
_TOKENIZER_FILES = ("tokenization_utils_base.py", "tokenization_utils.py")
_PADDING_FUNCTIONS = ("__init__", "convert_to_tensors", "as_tensor", "BatchEncoding(")

_CONVERTED_PATTERN = Pattern(r"torch\.(?:\w*Tensor|tensor|as_tensor)\(([A-Za-z_]\w*)")
_WHOLE_BATCHES = ("batch", "features", "samples", "data", "values", "value", "x", "item", "items")

_COLLATORS = (
    *("transformers.DataCollatorForLanguageModeling", "transformers.DataCollatorWithPadding"),
    "transformers.DataCollatorForSeq2Seq",
)
_COLUMN_DROPPING_MARKERS = (
    b"remove_columns",
    b"select_columns",
    b"set_format",
    b"with_format",
    b"set_transform",
    b"(Dataset)",
)


class DatasetCollationFormat(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Text columns that stay in the dataset and reach a collator that converts all columns to tensors."""
        unused = run.arguments.get("remove_unused_columns")
        if b".map(" not in script.source.data or unused.truth is not False:
            return
        maps = [call for call in script.calls("*.map") if call.node.args or call.passed_keyword("function") is not None]
        collators = list(script.calls(*_COLLATORS))
        if not collators or not maps or run_mentions(run, script, *_COLUMN_DROPPING_MARKERS):
            return
        yield self.finding(
            cure=(
                translated("Drop the columns where they are tokenized: map(..., remove_columns=dataset.column_names)"),
                translated("Or leave remove_unused_columns at True"),
            ),
            spans=(
                unused.span(),
                maps[0].place.span(translated("this setting keeps the columns")),
                collators[0].place.span(translated("this collator turns all columns into tensors")),
            ),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The tokenizer's error, or the collator's error about samples that can't be stacked."""
        if is_outside_training(log):
            return
        evidence = first_match(log, "Unable to create tensor, you should", "activate truncation and/or padding with")
        cause = next(
            (error for error in log.errors_of(says=self.patterns["causes"]) if _is_in_collation(error) or evidence),
            None,
        )
        if evidence is None:
            cause = cause or _find_cut_in_padding(log)
            if cause is None:
                return
            certainty = Certainty.LIKELY
        else:
            by_user = isinstance(evidence, LoggedError) and evidence.frames and not _is_in_collation(evidence)
            certainty = Certainty.LIKELY if by_user else Certainty.CERTAIN
        primary = evidence or cause
        assert primary is not None
        column = _COLUMN_PATTERN.search(matched_text(log, primary))
        yield self.log_finding(
            primary,
            translated("{column} can't be turned into a tensor when a batch is collated{why}.").format(
                column=Text(f"The column `{column.group(1)}`", f" `{column.group(1)}` 列")
                if column
                else translated("A column"),
                why=Text(f" ({_first_message_line(cause)})", f"（{_first_message_line(cause)}）")
                if cause and cause is not primary
                else "",
            ),
            certainty=certainty,
            extra_evidence=(cause,) if cause is not None and cause is not primary else (),
            confirm=translated("collator([dataset[0], dataset[1]]) raises the same error, without a GPU"),
        )


def _is_in_collation(error: LoggedError) -> bool:
    return error.passes(*_COLLATION_FRAMES, *_TENSOR_CONVERSION_FRAMES) and not _converts_its_own(error)


def _converts_its_own(error: LoggedError) -> bool:
    """Whether a framework's collator fails at a tensor of its own making (cu_seqlens), not at the dataset's columns."""
    last = error.innermost
    owner = code_owner_of_path(last.path) if last is not None else None
    return (
        last is not None
        and owner is not None
        and owner.owner in ("package", "clone")
        and owner.package not in ("transformers", "torch", "datasets")
        and (found := _CONVERTED_PATTERN.search(last.code)) is not None
        and found.group(1) not in _WHOLE_BATCHES
    )


def _find_cut_in_padding(log: FailureLog) -> LoggedError | None:
    cut = find_truncated_error(
        log, *((path, name) for path in _TOKENIZER_FILES for name in _PADDING_FUNCTIONS), max_frames=2
    )
    return cut if cut is not None and cut.passes(*_COLLATION_FRAMES) else None


def _first_message_line(cause: LoggedError | None) -> str:
    return cause.message.partition("\n")[0][:120] if cause else ""
