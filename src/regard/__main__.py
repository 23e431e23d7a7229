"""`python -m regard`, for where the `regard` command is not on the path."""

from regard.cli import main

if __name__ == "__main__":
    main()
