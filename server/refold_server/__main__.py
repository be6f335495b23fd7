"""Owns `python -m refold_server`: the same as `refold`."""

import sys

from refold_server.main import main

if __name__ == "__main__":
    sys.exit(main())
