"""python -m vinerl: the command line, also where the package is not installed."""

from vinerl.cli import main

if __name__ == "__main__":
    main()
