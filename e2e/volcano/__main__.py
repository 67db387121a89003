"""`python -m e2e.volcano`: see `e2e.volcano.scheduler`."""

import sys

from e2e.volcano.scheduler import main

sys.exit(main(sys.argv[1:]))
