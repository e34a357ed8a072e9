from accelerate import Accelerator
from model import build, batches

accelerator = Accelerator()
model, optimizer = build()
model, optimizer = accelerator.prepare(model, optimizer)
for batch in batches():
    accelerator.backward(model(**batch).loss)
    optimizer.step()
accelerator.wait_for_everyone()
accelerator.unwrap_model(model).save_pretrained("out", is_main_process=accelerator.is_main_process)
