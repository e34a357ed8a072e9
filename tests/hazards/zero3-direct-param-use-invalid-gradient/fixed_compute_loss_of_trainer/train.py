from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
from data import load


class RouterTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        loss = outputs.loss
        return (loss, outputs) if return_outputs else loss


(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
RouterTrainer(model=model, args=args, train_dataset=load()).train()
