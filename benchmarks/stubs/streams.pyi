from benchmarks.streams import *
