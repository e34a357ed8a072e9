"""``python -m gonogo.virtual PLAN``: one rank's worker process. Started by ``gonogo.rehearse``, not by users."""

from __future__ import annotations

import sys

from gonogo.virtual.ranks.importing import import_worker

if __name__ == "__main__":
    main = import_worker()
    sys.argv[0] = "gonogo-worker"
    main(sys.argv[1])
