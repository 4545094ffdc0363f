"""``python -m mcptrace_collector`` is ``mcptrace-collector``."""

import sys

from mcptrace_collector.cli import main

if __name__ == "__main__":
    sys.exit(main())
