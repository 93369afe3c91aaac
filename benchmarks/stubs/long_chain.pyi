from benchmarks.long_chain import *
