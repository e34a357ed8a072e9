from peft import LoraConfig, get_peft_model, prepare_model_for_int8_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("/models/llama-7b", load_in_8bit=True, device_map={"": 0})
model = get_peft_model(prepare_model_for_int8_training(model), LoraConfig(r=8, task_type="CAUSAL_LM"))
args = TrainingArguments(
    "out", fp16=True, evaluation_strategy="steps", save_strategy="steps", load_best_model_at_end=True
)
Trainer(model, args, train_dataset=rows("train"), eval_dataset=rows("eval")).train()
