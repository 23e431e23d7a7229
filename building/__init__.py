"""How the parts of regard that are not Python are built; hatch_build.py calls it."""
