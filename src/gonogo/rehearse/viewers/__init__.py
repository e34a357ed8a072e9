"""Files of a rehearsal for the usual viewers: PyTorch's memory_viz, Perfetto, PyTorch's Flight Recorder analyzer."""
