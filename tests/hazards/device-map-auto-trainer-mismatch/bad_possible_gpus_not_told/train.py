from torch import nn
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        loss_fct = nn.CrossEntropyLoss(ignore_index=-100)
        logits = outputs.logits[:, :-1].flatten(0, 1)
        loss = loss_fct(logits, inputs["labels"][:, 1:].flatten())
        return (loss, outputs) if return_outputs else loss


model = AutoModelForCausalLM.from_pretrained("/models/Qwen2.5-14B", torch_dtype="bfloat16", device_map="auto")
WeightedTrainer(model, TrainingArguments("out", bf16=True), train_dataset=rows()).train()
