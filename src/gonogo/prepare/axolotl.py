"""The columns that axolotl reads from a dataset, by the ``type`` of its entry in the YAML file.

Taken from its documentation (docs/dataset-formats and docs/rlhf.qmd of 0.19): the columns of each type with their
kinds, and the options of an entry that rename a column.
"""

from __future__ import annotations

from typing import Any

_COLUMNS_OF_INSTRUCTION_TYPE = {
    "alpaca": "instruction input output",
    "alpaca_chat": "instruction input response",
    "alpaca_chat.load_qa": "question answer",
    "alpaca_chat.load_concise": "instruction input response",
    "alpaca_chat.load_camel_ai": "message_1 message_2",
    "alpaca_w_system.load_open_orca": "system_prompt question response",
    "jeopardy": "question category answer",
    "oasst": "INSTRUCTION RESPONSE",
    "gpteacher": "instruction input response",
    "reflection": "instruction input output reflection corrected",
    "explainchoice": "question choices:texts solution explanation",
    "concisechoice": "question choices:texts solution explanation",
    "summarizetldr": "article summary",
    "context_qa": "article question answer",
    "context_qa.load_v2": "context question answer",
    "context_qa.load_404": "article unanswerable_question",
    "creative_acr.load_answer": "instruction revision",
    "creative_acr.load_critique": "scores critiques instruction answer",
    "creative_acr.load_revise": "scores critiques instruction answer revision",
    "metharme": "prompt generation",
    "stepwise_supervised": "prompt completions:texts labels:flags",
    "sharegpt": "conversations:turns",
}
# Preference pairs and rated answers, by what follows the name of a chat template (``chatml``, ``llama3``).
_PREFERENCE_COLUMNS = {
    "": "system prompt chosen rejected",
    "argilla": "system instruction chosen_response rejected_response",
    "argilla_chat": "chosen:chat rejected:chat",
    "icr": "system input chosen rejected",
    "intel": "system question chosen rejected",
    "prompt_pairs": "system prompt chosen rejected",
    "ultra": "system prompt chosen:chat rejected:chat",
}
_KTO_COLUMNS = {
    "": "system prompt completion label:flag",
    "argilla": "system instruction completion label:flag",
    "argilla_chat": "chosen:chat completion:chat label:flag",
    "intel": "system question completion label:flag",
    "prompt_pairs": "system prompt completion label:flag",
    "ultra": "system prompt completion label:flag",
}
_DEFAULT_FIELD_NAMES = {
    "field_system": "system", "field_instruction": "instruction", "field_input": "input", "field_output": "output",
    "field_prompt": "prompt", "field_chosen": "chosen", "field_rejected": "rejected", "field_completion": "completion",
    "field_label": "label",
}  # fmt: skip
_FIELDS_BY_RL = {
    None: ("field_system", "field_instruction", "field_input", "field_output"),
    "kto": ("field_system", "field_prompt", "field_completion", "field_label"),
    "dpo": ("field_system", "field_prompt", "field_chosen", "field_rejected"),
}


def columns_of_entry(entry: dict[str, Any], rl: str | None) -> tuple[str, ...]:
    """The columns of an entry of ``datasets``, each as ``name:kind``; empty if its type is unknown.

    ``rl`` is the preference method in the file (``dpo``, ``kto``, …), or None for supervised fine-tuning.
    """
    kind_of_entry = entry.get("type")
    if isinstance(kind_of_entry, dict):
        fields = _FIELDS_BY_RL.get(rl if rl in (None, "kto") else "dpo", ())
        names = {one: str(kind_of_entry.get(one) or _DEFAULT_FIELD_NAMES[one]) for one in fields}
        return tuple(f"{name}:{'flag' if one == 'field_label' else 'text'}" for one, name in names.items())
    kind = str(kind_of_entry or "")
    # "alpaca:phi" and "sharegpt:chat" have an old prompt style after the type.
    kind = kind.partition(":")[0]
    if kind.startswith("bradley_terry."):
        return _add_default_kind("system input chosen rejected")
    if kind in ("completion", "pretrain"):
        return (f"{entry.get('field') or entry.get('text_column') or 'text'}:text",)
    if kind == "chat_template" or (kind.startswith("chat_template.") and rl is None):
        return (f"{entry.get('field_messages') or 'messages'}:{_message_format(entry)}",)
    template, _, way = kind.partition(".")
    if template == "chat_template" and rl != "kto":
        if way in ("argilla", "argilla_chat"):
            return ("chosen:chat", "rejected:chat")
        sides = [f"{entry.get(f'field_{side}') or side}:message" for side in ("chosen", "rejected")]
        return (f"{entry.get('field_messages') or 'messages'}:chat", *sides)
    if template in ("chatml", "llama3") and rl is not None:
        return _add_default_kind((_KTO_COLUMNS if rl == "kto" else _PREFERENCE_COLUMNS).get(way, ""))
    return _add_default_kind(_COLUMNS_OF_INSTRUCTION_TYPE.get(kind) or _COLUMNS_OF_INSTRUCTION_TYPE.get(template, ""))


def _message_format(entry: dict[str, Any]) -> str:
    """``turns`` if a message has its content under ``value``, as in ShareGPT; otherwise ``chat``."""
    mapped = entry.get("message_property_mappings")
    content = mapped.get("content") if isinstance(mapped, dict) else entry.get("message_field_content")
    return "turns" if content == "value" else "chat"


def _add_default_kind(columns: str) -> tuple[str, ...]:
    return tuple(one if ":" in one else f"{one}:text" for one in columns.split())
