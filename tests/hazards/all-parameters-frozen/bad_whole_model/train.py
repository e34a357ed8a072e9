from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("model")
for parameter in model.parameters():
    parameter.requires_grad = False
Trainer(model, TrainingArguments("out"), train_dataset=rows()).train()
