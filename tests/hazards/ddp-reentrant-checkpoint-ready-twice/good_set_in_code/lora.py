import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = transformers.HfArgumentParser(TrainingArguments)
(args,) = parser.parse_args_into_dataclasses()
if args.gradient_checkpointing:
    args.gradient_checkpointing_kwargs = {"use_reentrant": False}
model = AutoModelForCausalLM.from_pretrained("/models/Llama-2-7b")
model.enable_input_require_grads()
# only the adapters are trained
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
trainer = Trainer(model=model, args=args, train_dataset=rows())
trainer.train()
