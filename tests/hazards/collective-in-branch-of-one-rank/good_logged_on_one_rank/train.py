import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 2)

    def training_step(self, batch, index):
        data, label = batch
        loss = F.cross_entropy(self.net(data), label)
        if self.trainer.is_global_zero:
            self.log("loss", loss, rank_zero_only=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
trainer = lightning.Trainer(accelerator="gpu", devices=4, strategy="ddp", max_epochs=1)
trainer.fit(Classifier(), DataLoader(data, batch_size=4))
