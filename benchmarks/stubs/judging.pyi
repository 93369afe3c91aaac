from benchmarks.judging import *
