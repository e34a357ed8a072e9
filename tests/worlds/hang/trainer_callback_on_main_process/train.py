"""A Trainer callback that shows what the model says after each step, on the main process only."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class ShowSample(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        if not state.is_world_process_zero:
            return
        prompt = torch.tensor([[1, 2, 3]], device=args.device)
        with torch.no_grad():
            logits = model(input_ids=prompt).logits
        print("next token:", logits[0, -1].argmax())


class Corpus(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        tokens = torch.arange(16) + index
        return {"input_ids": tokens, "labels": tokens}


def main():
    arguments = TrainingArguments(
        output_dir="output", per_device_train_batch_size=1, max_steps=2, save_strategy="no", report_to=[],
        deepspeed="ds_config.json", use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=32, n_embd=64, n_layer=2, n_head=4))
    trainer = Trainer(model=model, args=arguments, train_dataset=Corpus(), callbacks=[ShowSample()])
    trainer.train()


if __name__ == "__main__":
    main()
