from benchmarks.long_run import *
