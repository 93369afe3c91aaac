from benchmarks.load import *
