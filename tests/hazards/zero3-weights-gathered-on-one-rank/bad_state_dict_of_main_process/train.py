from accelerate import Accelerator
from model import build, batches

accelerator = Accelerator()
model, optimizer = build()
model, optimizer = accelerator.prepare(model, optimizer)
for step, batch in enumerate(batches()):
    accelerator.backward(model(**batch).loss)
    optimizer.step()
    optimizer.zero_grad()
if accelerator.is_main_process:
    weights = accelerator.get_state_dict(model)
    accelerator.unwrap_model(model).save_pretrained("out", state_dict=weights)
