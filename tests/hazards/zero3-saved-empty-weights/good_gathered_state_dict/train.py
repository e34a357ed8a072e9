from accelerate import Accelerator
from model import build, batches

accelerator = Accelerator()
model, optimizer = build()
model, optimizer = accelerator.prepare(model, optimizer)
for batch in batches():
    accelerator.backward(model(**batch).loss)
    optimizer.step()
unwrapped = accelerator.unwrap_model(model)
unwrapped.save_pretrained("out", state_dict=accelerator.get_state_dict(model), save_function=accelerator.save)
