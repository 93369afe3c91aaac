from benchmarks.apart import *
