mkdir -p exp/first
cp -r tools lib exp/first/
cd exp/first
export PYTHONPATH=.
torchrun --nproc_per_node 2 tools/train.py
