"""`python -m explore` is `explore`."""

from explore._cli.main import main

raise SystemExit(main())
