deepspeed train.py --deepspeed zero3.json
