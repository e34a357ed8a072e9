import deepspeed
from torch import nn
from torch.nn import functional as F
from model import Encoder, batches


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()

    def forward(self, ids, labels):
        hidden = self.encoder(ids)
        logits = F.linear(hidden, self.encoder.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


model = Tied()
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in batches():
    engine.backward(engine(**batch))
    engine.step()
