"""`python -m helios.cli` is the command `helios`."""

from helios.cli import main

if __name__ == "__main__":
    main(prog_name="helios")
