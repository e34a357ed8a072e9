from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("model")
for parameter in model.parameters():
    parameter.requires_grad = False
model.lm_head.weight.requires_grad = True
Trainer(model, TrainingArguments("out"), train_dataset=rows()).train()
