"""``python -m eacgm`` is the program ``eacgm``."""

import sys

from eacgm.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
