from transformers import Trainer


class LoggingTrainer(Trainer):
    def training_step(self, model, inputs):
        loss = super().training_step(model, inputs)
        print(loss.item())
        return loss
