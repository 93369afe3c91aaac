"""Machine-made mutants, generated from the code, and the share of them that random scenarios detect.

Each bug changes one place of a module of ``consensus`` or ``validator``. No file is changed: a separate process imports
the changed source in place of the module.
"""
