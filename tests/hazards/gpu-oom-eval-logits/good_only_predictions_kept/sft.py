import numpy as np
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def accuracy(prediction):
    return {"accuracy": (np.argmax(prediction.predictions, -1) == prediction.label_ids).mean()}


model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(
    model=model,
    args=TrainingArguments("out", bf16=True, eval_strategy="epoch"),
    train_dataset=rows("train"),
    eval_dataset=rows("eval"),
    compute_metrics=accuracy,
    preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
)
trainer.train()
