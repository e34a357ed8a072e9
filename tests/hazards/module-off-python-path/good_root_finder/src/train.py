import rootutils

rootutils.setup_root(__file__, indicator=".project-root", pythonpath=True)

from src.tool import __name__ as tool

print(tool)
