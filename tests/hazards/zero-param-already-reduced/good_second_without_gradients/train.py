import torch
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments
from data import pairs


class PairwiseTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        chosen = model(input_ids=inputs["chosen_ids"], attention_mask=inputs["chosen_mask"]).logits
        with torch.no_grad():
            rejected = model(input_ids=inputs["rejected_ids"], attention_mask=inputs["rejected_mask"]).logits
        loss = -F.logsigmoid(chosen - rejected).mean()
        return (loss, {"chosen": chosen, "rejected": rejected}) if return_outputs else loss


(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForSequenceClassification.from_pretrained("Qwen/Qwen2.5-7B", num_labels=1)
PairwiseTrainer(model=model, args=args, train_dataset=pairs()).train()
