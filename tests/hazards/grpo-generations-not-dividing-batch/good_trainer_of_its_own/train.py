from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer
from trl import GRPOConfig


class GroupTrainer(Trainer):
    """Generates all answers of a prompt on the rank that has it: the batch counts prompts."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        answers = model.generate(**inputs, num_return_sequences=self.args.num_generations)
        return model(answers, labels=answers).loss


args = GRPOConfig(
    output_dir="out", per_device_train_batch_size=1, gradient_accumulation_steps=1, num_generations=8
)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-4B")
GroupTrainer(model, args=args, train_dataset=load_dataset("trl-lib/tldr", split="train")).train()
