from torch import nn
from transformers import Trainer, TrainingArguments


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 64)
        self.score = nn.Linear(64, 1)
        self.margin = nn.Linear(64, 1)

    def forward(self, x, labels):
        score = self.score(self.body(x))
        return {"loss": nn.functional.mse_loss(score, labels)}


Trainer(Scorer(), TrainingArguments("out"), train_dataset=rows()).train()
