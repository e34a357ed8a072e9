import deepspeed
import torch
from torch import nn
from parts import LanguageModel, VisionTower, batches


class TextAndImages(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision_tower = VisionTower()
        self.projector = nn.Linear(1024, 4096)
        self.language_model = LanguageModel()

    def forward(self, ids, labels, images=None):
        embedded = self.language_model.embed(ids)
        if images is not None:
            embedded = torch.cat([self.projector(self.vision_tower(images)), embedded], dim=1)
        return self.language_model(embedded, labels=labels)


model = TextAndImages()
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in batches():
    engine.backward(engine(**batch))
    engine.step()
