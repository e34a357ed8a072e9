import sys

import yaml

with open(sys.argv[1]) as file:
    print(yaml.safe_load(file))
