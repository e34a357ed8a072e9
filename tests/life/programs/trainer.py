"""transformers' Trainer with a small Qwen2, whatever strategy its arguments say.

``--adapter``: LoRA on top; ``--head``: its output layer is trained and not saved; ``--kept``: by modules_to_save;
``--tied``: the output layer is the embedding; ``--sft``: TRL's trainer; ``--frozen``: only the output layer is trained;
``--dropout``: so that random numbers count; ``--based``: its weights are those in base/; ``--newest``: it resumes from
the newest checkpoint in its folder.
"""

import os
import sys

import torch
import transformers
from datasets import Dataset
from transformers import HfArgumentParser, Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

OWN = ("--adapter", "--head", "--kept", "--tied", "--sft", "--frozen", "--dropout", "--based", "--newest")
given = {word for word in sys.argv[1:] if word in OWN}
words = [word for word in sys.argv[1:] if word not in OWN]
settings = TrainingArguments
if "--sft" in given:
    from trl import SFTConfig, SFTTrainer

    settings = SFTConfig
(args,) = HfArgumentParser(settings).parse_args_into_dataclasses(words)
config = Qwen2Config(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=200, tie_word_embeddings="--tied" in given, attention_dropout=0.1 if "--dropout" in given else 0.0,
)  # fmt: skip
transformers.set_seed(1)
model = Qwen2ForCausalLM.from_pretrained("base") if "--based" in given else Qwen2ForCausalLM(config)
if "--frozen" in given:
    model.model.requires_grad_(False)
if "--adapter" in given:
    from peft import LoraConfig, get_peft_model

    kept = ["lm_head"] if "--kept" in given else None
    model = get_peft_model(
        model, LoraConfig(target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", modules_to_save=kept)
    )
    if "--head" in given:  # trained, and not in modules_to_save
        model.get_output_embeddings().weight.requires_grad_(True)
rows = torch.randint(0, 200, (64, 8), generator=torch.Generator().manual_seed(3)).tolist()
data = Dataset.from_list([{"input_ids": row, "labels": row} for row in rows])
if "--sft" in given:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    known = Tokenizer(models.WordLevel({f"t{number}": number for number in range(200)}, unk_token="t0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=known, pad_token="t0", eos_token="t1")
    trainer = SFTTrainer(model=model, args=args, train_dataset=data, processing_class=tokenizer)
else:
    trainer = Trainer(model=model, args=args, train_dataset=data)
newest = get_last_checkpoint(args.output_dir) if "--newest" in given and os.path.isdir(args.output_dir) else None
trainer.train(resume_from_checkpoint=newest or args.resume_from_checkpoint)
