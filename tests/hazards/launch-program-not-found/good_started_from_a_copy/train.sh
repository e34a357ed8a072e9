CODE=exp/first/code
mkdir -p "$CODE"
cp -r tools lib "$CODE"
export PYTHONPATH=./$CODE
python "$CODE"/tools/train.py
