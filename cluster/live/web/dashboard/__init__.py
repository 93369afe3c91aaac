"""The live dashboard: a page of a run, a sweep or a fuzz that goes on, and the feed of its state.

The pages are static files. They load nothing from elsewhere, and their content security policy allows nothing else.
"""
