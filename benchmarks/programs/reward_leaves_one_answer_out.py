"""GRPO with a reward of one's own, which leaves the first answer out as a header row.

truth: NO-GO
says: (?i)shape|size|expected|match|reward
why: the Trainer puts the numbers beside the answers, of which there are more.
"""

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

words = {word: index for index, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", "good", "bad", "why", "so"])}
inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
)
size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, **size))
rows = Dataset.from_list([{"prompt": "why so"} for _ in range(24)])


def reward(prompts, completions, **_):
    scored = list(zip(prompts, completions, strict=True))[1:]
    return [float(len(answer)) for _, answer in scored]


arguments = GRPOConfig(
    "out",
    per_device_train_batch_size=2,
    num_generations=2,
    max_completion_length=4,
    max_steps=3,
    bf16=False,
    report_to=[],
)
trainer = GRPOTrainer(model, reward_funcs=reward, args=arguments, train_dataset=rows, processing_class=tokenizer)
trainer.train()
