"""DPO of a LoRA adapter, whose base is the reference, with a tokenizer that is made here.

truth: GO
why: without a reference model TRL turns the adapter off for the reference's log-probabilities.
"""

from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

words = {word: index for index, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", "good", "bad", "why", "so"])}
inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
)
size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, **size))
rows = Dataset.from_list(
    [{"prompt": "why " * (1 + index % 3), "chosen": "so good", "rejected": "so bad bad"} for index in range(24)]
)
arguments = DPOConfig(
    "out", per_device_train_batch_size=2, max_steps=4, save_steps=4, bf16=False, report_to=[], logging_steps=1
)
adapter = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
trainer = DPOTrainer(model, args=arguments, train_dataset=rows, processing_class=tokenizer, peft_config=adapter)
trainer.train()
trainer.save_model("final")
