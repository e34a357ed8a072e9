"""Reads the config keys that releases of DeepSpeed know out of their source, without importing them.

    python -m scripts.deepspeed_keys FOLDER...

Each FOLDER is an unpacked release (it holds ``deepspeed/`` and ``version.txt`` or ``PKG-INFO``); the installed one is
added. What they know is written to ``src/gonogo/evidence/tables/deepspeed_keys.json``.
"""
