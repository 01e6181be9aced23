"""`keras-ring report`: what a timeline tells of a job, as one page.

The modules `steps` to `verdict` compute, `figures` draws, `page` writes.
"""
