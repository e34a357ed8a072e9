from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

from data import load_examples


class Evaluating(Trainer):
    def get_eval_dataloader(self, eval_dataset=None):
        return load_examples("dev")


def main():
    (args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained("models/llama-2-7b")
    trainer = Evaluating(model=model, args=args, train_dataset=load_examples("train"))
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
