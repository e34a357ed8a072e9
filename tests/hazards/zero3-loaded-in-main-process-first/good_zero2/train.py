from accelerate import Accelerator
from transformers import AutoModelForCausalLM, AutoTokenizer
from data import batches, optimizer_of

accelerator = Accelerator()
with accelerator.main_process_first():
    tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B")
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")

optimizer = optimizer_of(model)
model, optimizer = accelerator.prepare(model, optimizer)
for batch in batches(tokenizer):
    accelerator.backward(model(**batch).loss)
    optimizer.step()
    optimizer.zero_grad()
