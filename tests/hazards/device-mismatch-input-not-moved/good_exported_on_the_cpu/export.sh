python export.py
