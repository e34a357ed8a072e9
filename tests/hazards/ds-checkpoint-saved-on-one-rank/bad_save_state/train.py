from accelerate import Accelerator
from model import build, batches

accelerator = Accelerator()
model, optimizer = build()
model, optimizer = accelerator.prepare(model, optimizer)
for step, batch in enumerate(batches()):
    accelerator.backward(model(**batch).loss)
    optimizer.step()
    optimizer.zero_grad()
    if accelerator.is_main_process and step % 500 == 0:
        accelerator.save_state(f"out/step-{step}")
