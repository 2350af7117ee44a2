"""``python -m pipesched``."""

import sys

from pipesched.cli import main

if __name__ == "__main__":
    sys.exit(main())
