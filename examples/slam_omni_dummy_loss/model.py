"""SLAM-Omni's speaking half: a language model whose hidden states an adapter turns into groups of speech codes."""

import torch
from torch import nn
from torch.nn import functional as F

IGNORE_INDEX = -100


class LinearGroupDecodeAdapter(nn.Module):
    """One hidden state in, the logits of ``code_layer`` speech codes out."""

    def __init__(self, hidden_size, audio_vocab_size, code_layer):
        super().__init__()
        self.audio_vocab_size = audio_vocab_size
        self.code_layer = code_layer
        self.linear = nn.Linear(hidden_size, audio_vocab_size * code_layer)

    def forward(self, hidden_states):
        logits = self.linear(hidden_states)
        return logits.unflatten(-1, (self.code_layer, self.audio_vocab_size))


class SlamOmni(nn.Module):
    def __init__(self, llm, audio_vocab_size, code_layer):
        super().__init__()
        self.llm = llm
        hidden_size = llm.config.hidden_size
        self.code_embedding = nn.Embedding(audio_vocab_size, hidden_size)
        self.group_decode_adapter = LinearGroupDecodeAdapter(hidden_size, audio_vocab_size, code_layer)

    def forward(self, input_ids, attention_mask, codes, labels, code_labels):
        """``codes`` and ``code_labels`` are (batch, sequence, code_layer); a text position has code 0 and no label."""
        text = self.llm.get_input_embeddings()(input_ids)
        speech = self.code_embedding(codes).mean(dim=2)
        output = self.llm.model(inputs_embeds=text + speech, attention_mask=attention_mask, use_cache=False)
        hidden_states = output.last_hidden_state

        text_loss = token_loss(self.llm.lm_head(hidden_states), labels)
        speech_loss = token_loss(self.group_decode_adapter(hidden_states), code_labels)
        return text_loss + speech_loss


def token_loss(logits, labels):
    """Next-token cross entropy; 0 where a batch has no labels at all."""
    logits = logits[:, :-1].flatten(0, -2).float()
    labels = labels[:, 1:].flatten()
    total = F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="sum")
    return total / labels.ne(IGNORE_INDEX).sum().clamp(min=1)


def from_pretrained(path, audio_vocab_size, code_layer, dtype=torch.bfloat16):
    from transformers import AutoModelForCausalLM

    llm = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    llm.gradient_checkpointing_enable()
    return SlamOmni(llm, audio_vocab_size, code_layer).to(dtype)
