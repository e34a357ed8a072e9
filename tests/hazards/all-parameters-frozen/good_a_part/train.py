from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("model")
for parameter in model.model.embed_tokens.parameters():
    parameter.requires_grad = False
Trainer(model, TrainingArguments("out"), train_dataset=rows()).train()
