"""Print the requirements of a pyproject.toml: `requirements.py pyproject.toml [extra ...]`."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
print(*project["dependencies"], sep="\n")
for extra in sys.argv[2:]:
    print(*project["optional-dependencies"][extra], sep="\n")
