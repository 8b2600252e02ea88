"""`python -m explore` is `explore`."""

from explore.cli import main

raise SystemExit(main())
