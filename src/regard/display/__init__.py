"""Notebook displays of masks, maps, observations, recordings, atlases and knock-outs.

Results show themselves: end a cell with one. There is nothing to call here.
"""
