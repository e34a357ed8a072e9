from accelerate import Accelerator
from model import build, batches

accelerator = Accelerator()
model, optimizer = build()
model, optimizer = accelerator.prepare(model, optimizer)
for step, batch in enumerate(batches()):
    accelerator.backward(model(**batch).loss)
    optimizer.step()
    optimizer.zero_grad()
