from accelerate import Accelerator
from model import build, batches

accelerator = Accelerator()
model, optimizer = build()
model, optimizer = accelerator.prepare(model, optimizer)
for step, batch in enumerate(batches()):
    accelerator.backward(model(**batch).loss)
    optimizer.step()
    optimizer.zero_grad()
unwrapped = accelerator.unwrap_model(model)
weights = accelerator.get_state_dict(model)
unwrapped.save_pretrained("out", is_main_process=accelerator.is_main_process, state_dict=weights)
