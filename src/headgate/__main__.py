"""`python -m headgate` is the command `headgate`."""

from headgate.cli import main

main()
