from benchmarks.runs import *
