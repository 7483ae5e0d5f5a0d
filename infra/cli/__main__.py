"""`python -m infra.cli`: the command `docwell` where no script is installed."""

from infra.cli import main

main()
