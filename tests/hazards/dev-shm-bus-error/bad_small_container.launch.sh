docker run -it --gpus all -v /data:/data nvcr.io/nvidia/pytorch:24.01-py3
