import deepspeed
from torch import nn
from data import batches


class Projector(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        nn.init.xavier_uniform_(self.up.weight)

    def forward(self, x):
        return self.down(self.up(x).relu()).square().mean()


with torch.device("cpu"):
    model = Projector(4096)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for x in batches():
    engine.backward(engine(x))
    engine.step()
