"""`keras-ring report`: the analysis of a timeline, as one page.

The modules `steps` to `verdict` compute, `figures` draws, `page` writes.
"""
