import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, get_scheduler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()

    accelerator = Accelerator()
    set_seed(42)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    with accelerator.main_process_first():
        data = load_dataset("json", data_files=args.data, split="train")
        data = data.map(
            lambda batch: tokenizer(batch["text"], truncation=True, max_length=4096),
            batched=True,
            remove_columns=data.column_names,
        )
    collate = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    loader = DataLoader(data, batch_size=args.batch, shuffle=True, collate_fn=collate)

    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    steps = args.epochs * len(loader)
    scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=100, num_training_steps=steps)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    for epoch in range(args.epochs):
        model.train()
        for step, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if step % 20 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.3f}")
        accelerator.save_state(f"{args.out}/epoch{epoch}")

    accelerator.wait_for_everyone()
    weights = accelerator.get_state_dict(model)
    accelerator.unwrap_model(model).save_pretrained(
        args.out, is_main_process=accelerator.is_main_process, save_function=accelerator.save, state_dict=weights
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
