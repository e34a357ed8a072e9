import os
import sys

import yaml

if os.path.exists(sys.argv[1]):
    print(yaml.safe_load(open(sys.argv[1])))
