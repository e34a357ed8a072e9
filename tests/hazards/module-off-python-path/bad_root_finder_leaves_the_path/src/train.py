import rootutils

rootutils.setup_root(__file__, indicator=".project-root")

from src.tool import __name__ as tool

print(tool)
