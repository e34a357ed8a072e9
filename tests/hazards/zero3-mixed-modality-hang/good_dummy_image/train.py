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
        has_images = images is not None
        seen = self.vision_tower(images if has_images else torch.zeros(1, 3, 336, 336, device=ids.device))
        projected = self.projector(seen)
        embedded = torch.cat([projected, embedded], dim=1) if has_images else embedded + 0.0 * projected.sum()
        return self.language_model(embedded, labels=labels)


model = TextAndImages()
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in batches():
    engine.backward(engine(**batch))
    engine.step()
